"""Adding to memory that several kernel threads add to."""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic


@intrinsic
def add(_typing: Any, array: Any, index: Any, amount: Any) -> Any:
    """``array[index] += amount`` in one piece, for an array of whole numbers and a flat index known to be in range."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        builder.atomic_rmw("add", builder.gep(data, [args[1]]), args[2], "monotonic")
        return context.get_dummy_value()

    return types.void(array, types.int64 if index.signed else types.uint64, array.dtype), generate
