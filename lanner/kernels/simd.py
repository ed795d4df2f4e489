"""A tiny vector layer for Numba kernels: rows of float32 held in registers, and prefetch.

LLVM does not vectorise the obvious loop over a row (it must assume that table and output overlap), so kernels say
what they mean: `row = load(table, at, lanes)` is one value of type `Vector`, `+ - * /` act on all lanes at once, and
`store(out, at, row)` writes it. The number of lanes is part of the argument *type* (`Lanes(64)`), so that one
module-level kernel is compiled, and cached on disk, once for each width. Any width is legal; LLVM cuts a vector
into registers and finishes an odd tail with narrower ones. No bounds are checked here: kernels check ids first.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import lower_constant
from numba.extending import NativeValue, intrinsic, models, overload, register_model, typeof_impl, unbox

_F32, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_BYTE = ir.IntType(8).as_pointer()
_LINE = 64  # bytes of a cache line
_FIRST_LEVEL, _SECOND_LEVEL = 3, 2  # LLVM's names for where a line is fetched to


_WIDEST = 128  # lanes that still fit the registers beside a few temporaries


class Lanes:
    """A number of float32 lanes that kernels know when they are compiled; pass it as an argument."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"a vector needs at least 1 lane, got {count}")
        self.count = count
        self._numba_type_ = LanesType(count)


def lanes_for(dim: int) -> Lanes:
    """Lanes in which rows of `dim` floats are worked through: all of them, or for long rows the widest equal parts.

    A width above 128 that has no large divisor (a prime, at worst) is slow, since its parts are narrow.
    """
    return _lanes(next(part for part in range(min(dim, _WIDEST), 0, -1) if dim % part == 0))


_lanes = lru_cache(maxsize=None)(Lanes)


class LanesType(types.Type):
    """Numba's type of a `Lanes`; carries no value at run time."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(name=f"Lanes({count})")


class Vector(types.Type):
    """Numba's type of `count` float32 in registers."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(name=f"Vector({count})")


@register_model(LanesType)
class _LanesModel(models.OpaqueModel):
    pass


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, ir.VectorType(_F32, kind.count))


@typeof_impl.register(Lanes)
def _type_of_lanes(value: Lanes, _context: Any) -> LanesType:
    return value._numba_type_


@lower_constant(LanesType)
def _constant_lanes(context: Any, _builder: Any, _kind: LanesType, _value: Lanes) -> Any:
    return context.get_dummy_value()


@unbox(LanesType)
def _unbox_lanes(_kind: LanesType, _value: Any, context: Any) -> NativeValue:
    return NativeValue(context.context.get_dummy_value())


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [index])


def _index(index: Any) -> Any:
    return types.int64 if index.signed else types.uint64


def _constant(count: int, value: float) -> Any:
    return ir.Constant(ir.VectorType(_F32, count), [value] * count)


def _splat(builder: Any, value: Any, count: int) -> Any:
    one = builder.insert_element(_constant(count, 0.0), value, _I32(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_I32, count), [0] * count))


def _prefetch(builder: Any, pointer: Any, locality: int) -> None:
    kind = ir.FunctionType(ir.VoidType(), [_BYTE, _I32, _I32, _I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [builder.bitcast(pointer, _BYTE), _I32(0), _I32(locality), _I32(1)])


@intrinsic
def width(_typing: Any, lanes: Any) -> Any:
    """The number of lanes, a constant."""

    def generate(_context: Any, _builder: Any, _signature: Any, _args: Any) -> Any:
        return _I64(lanes.count)

    return types.int64(lanes), generate


@intrinsic
def get(_typing: Any, array: Any, index: Any) -> Any:
    """``array[index]`` for a flat index known to be in range: no wrap-around of negative ones, so no branch."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, signature.args[0], *args))

    return array.dtype(array, _index(index)), generate


@intrinsic
def put(_typing: Any, array: Any, index: Any, value: Any) -> Any:
    """``array[index] = value`` for a flat index known to be in range."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, signature.args[0], args[0], args[1]))
        return context.get_dummy_value()

    return types.void(array, _index(index), array.dtype), generate


@intrinsic
def prefetch(_typing: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of ``array[index]`` (flat index, never faults, even out of bounds)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _prefetch(builder, _pointer(context, builder, signature.args[0], *args), _FIRST_LEVEL)
        return context.get_dummy_value()

    return types.void(array, _index(index)), generate


@intrinsic
def prefetch_row(_typing: Any, array: Any, index: Any, lanes: Any) -> Any:
    """Ask for every cache line of the `lanes` floats from ``array[index]`` on (never faults).

    They come into the second-level cache. So many lines at once do not fit among the first level's few outstanding
    requests: gathers ran 1.6 times slower on a Zen 4 when it was asked. Memory on small pages is better asked for
    with `prefetch`: a request that misses the address cache may be dropped.
    """
    step = _LINE // 4

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = _pointer(context, builder, signature.args[0], args[0], args[1])
        for at in range(0, lanes.count, step):
            _prefetch(builder, builder.gep(start, [_I64(at)]), _SECOND_LEVEL)
        return context.get_dummy_value()

    return types.void(array, _index(index), lanes), generate


@intrinsic
def load(_typing: Any, array: Any, index: Any, lanes: Any) -> Any:
    """The `lanes` float32 of the flat `array` from `index` on."""
    kind = ir.VectorType(_F32, lanes.count)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = _pointer(context, builder, signature.args[0], args[0], args[1])
        return builder.load(builder.bitcast(start, kind.as_pointer()), align=4)

    return Vector(lanes.count)(array, _index(index), lanes), generate


@intrinsic
def store(_typing: Any, array: Any, index: Any, vector: Any) -> Any:
    """Write `vector` into the flat float32 `array` from `index` on."""
    kind = ir.VectorType(_F32, vector.count)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = _pointer(context, builder, signature.args[0], args[0], args[1])
        builder.store(args[2], builder.bitcast(start, kind.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, _index(index), vector), generate


@intrinsic
def splat(_typing: Any, value: Any, lanes: Any) -> Any:
    """A vector whose every lane is the float32 `value`."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _splat(builder, args[0], lanes.count)

    return Vector(lanes.count)(types.float32, lanes), generate


@intrinsic
def fma(_typing: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        kind = args[0].type
        name = f"llvm.fma.v{a.count}f32"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
        return builder.call(function, args)

    return a(a, b, c), generate


@intrinsic
def sqrt(_typing: Any, a: Any) -> Any:
    """Square root of every lane."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        kind = args[0].type
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(kind, [kind]), f"llvm.sqrt.v{a.count}f32"
        )
        return builder.call(function, args)

    return a(a), generate


@intrinsic
def total(_typing: Any, a: Any) -> Any:
    """Sum of all lanes, added in pairs (a tree, whose rounding error grows with log2 of the width)."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _tree(builder, args[0], a.count)

    return types.float32(a), generate


def _tree(builder: Any, vector: Any, count: int) -> Any:
    if count == 1:
        return builder.extract_element(vector, _I32(0))
    half = (count + 1) // 2

    def lanes(indices: list[Any]) -> Any:
        return ir.Constant(ir.VectorType(_I32, half), indices)

    zero = _constant(count, 0.0)
    low = builder.shuffle_vector(vector, zero, lanes(list(range(half))))
    high = builder.shuffle_vector(vector, zero, lanes(list(range(half, 2 * half))))  # lane `count` is a zero
    return _tree(builder, builder.fadd(low, high), half)


def _overload_binary(operator_: Any, instruction: str) -> None:
    """Let kernels write the Python operator between two vectors of one width."""

    @intrinsic
    def apply(_typing: Any, a: Any, b: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return getattr(builder, instruction)(*args)

        return a(a, b), generate

    def choose(a, b):  # type: ignore[no-untyped-def]  # Numba compares this signature with the lambda's
        same = isinstance(a, Vector) and isinstance(b, Vector) and a.count == b.count
        return (lambda a, b: apply(a, b)) if same else None

    overload(operator_)(choose)


_overload_binary(operator.add, "fadd")
_overload_binary(operator.sub, "fsub")
_overload_binary(operator.mul, "fmul")
_overload_binary(operator.truediv, "fdiv")
