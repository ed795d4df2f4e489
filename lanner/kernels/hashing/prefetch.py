"""Ask the processor for a cache line ahead of its use."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic


@intrinsic
def prefetch(_typing: Any, array: Any, index: Any) -> Any:
    """Fetch the cache line of array[index] (1-D, C order) for reading; harmless whatever the index."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [builder.bitcast(builder.gep(data, [args[1]]), byte), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, index), codegen
