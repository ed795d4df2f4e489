"""A tiny vector layer for Numba kernels: rows of float32 held in registers, and prefetch.

LLVM does not vectorise the obvious loop over a row (it must assume that table and output overlap), so kernels say
what they mean: `row = load(table, at, lanes)` is one value of type `Vector`, `+ - * /` act on all lanes at once, and
`store(out, at, row)` writes it. The number of lanes is part of the argument *type* (`Lanes(64)`), so that one
module-level kernel is compiled, and cached on disk, once for each width. Any width is legal; LLVM cuts a vector
into registers and finishes an odd tail with narrower ones. No bounds are checked here: kernels check ids first.

Rows longer than a vector are worked through in parts:

    for part in range(0, dim, width(lanes)):
        piece = lanes_from(lanes, part, dim)
        store(out, part, load(row, part, piece), piece)

where `piece` is `lanes` again, but for a last part that is shorter: its missing lanes load as 0 and are not stored.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.types.misc import CPointer
from numba.extending import intrinsic, overload

from lanner.kernels.lanes import PieceType, Vector

_F32, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_BYTE = ir.IntType(8).as_pointer()
_LINE = 64  # bytes of a cache line
_FIRST_LEVEL, _SECOND_LEVEL = 3, 2  # LLVM's names for where a line is fetched to


def pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """Where element `index` of a flat array, or of a `memory_of` one, of Numba's type `kind` lies."""
    data = array if isinstance(kind, CPointer) else context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [index])


@intrinsic
def memory_of(_typing: Any, array: Any) -> Any:
    """The memory of a flat array, to be used in its place by all that takes a flat index.

    Nothing counts references to it. Numba counts those to an array that goes through functions and branches, by
    atomic additions that cost more than the work on a short row. Whoever calls must keep the array: a kernel's
    argument lives as long as the call, an array made in the kernel only until it is named for the last time.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return CPointer(array.dtype)(array), generate


def _index(index: Any) -> Any:
    return types.int64 if index.signed else types.uint64


def _constant(count: int, value: float) -> Any:
    return ir.Constant(ir.VectorType(_F32, count), [value] * count)


def splat_lanes(builder: Any, value: Any, count: int) -> Any:
    """A vector of `count` times an LLVM value."""
    one = builder.insert_element(ir.Constant(ir.VectorType(value.type, count), ir.Undefined), value, _I32(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_I32, count), [0] * count))


def fma_lanes(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` of float32 vectors, rounded once."""
    kind = a.type
    name = f"llvm.fma.v{kind.count}f32"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
    return builder.call(function, [a, b, c])


def _prefetch(builder: Any, pointer: Any, locality: int) -> None:
    kind = ir.FunctionType(ir.VoidType(), [_BYTE, _I32, _I32, _I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [builder.bitcast(pointer, _BYTE), _I32(0), _I32(locality), _I32(1)])


def prefetch_lanes(builder: Any, start: Any, element: Any, count: int) -> None:
    """Ask for the cache lines of `count` elements (of an LLVM type) from the pointer `start` on."""
    for at in range(0, count, _LINE // _bytes(element)):
        _prefetch(builder, builder.gep(start, [_I64(at)]), _SECOND_LEVEL)


@intrinsic
def width(_typing: Any, lanes: Any) -> Any:
    """The number of lanes, a constant."""

    def generate(_context: Any, _builder: Any, _signature: Any, _args: Any) -> Any:
        return _I64(lanes.count)

    return types.int64(lanes), generate


@intrinsic
def lanes_from(_typing: Any, lanes: Any, part: Any, dim: Any) -> Any:
    """The lanes of a row of `dim` columns from column `part` on: `lanes`, or fewer in a shorter last part."""
    kind = PieceType(lanes.count, lanes.tail) if lanes.tail else lanes

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        if not lanes.tail:
            return context.get_dummy_value()
        return builder.icmp_signed(">", builder.add(args[1], _I64(lanes.count)), args[2])

    return kind(lanes, types.int64, types.int64), generate


@intrinsic
def get(_typing: Any, array: Any, index: Any) -> Any:
    """``array[index]`` for a flat index known to be in range: no wrap-around of negative ones, so no branch."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(pointer(context, builder, signature.args[0], *args))

    return array.dtype(array, _index(index)), generate


@intrinsic
def put(_typing: Any, array: Any, index: Any, value: Any) -> Any:
    """``array[index] = value`` for a flat index known to be in range."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], pointer(context, builder, signature.args[0], args[0], args[1]))
        return context.get_dummy_value()

    return types.void(array, _index(index), array.dtype), generate


@intrinsic
def prefetch(_typing: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of ``array[index]`` (flat index, never faults, even out of bounds)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _prefetch(builder, pointer(context, builder, signature.args[0], *args), _FIRST_LEVEL)
        return context.get_dummy_value()

    return types.void(array, _index(index)), generate


@intrinsic
def prefetch_row(_typing: Any, array: Any, index: Any, lanes: Any) -> Any:
    """Ask for every cache line of the `lanes` floats from ``array[index]`` on (never faults).

    They come into the second-level cache. So many lines at once do not fit among the first level's few outstanding
    requests: gathers ran 1.6 times slower on a Zen 4 when it was asked. Memory on small pages is better asked for
    with `prefetch`: a request that misses the address cache may be dropped.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = pointer(context, builder, signature.args[0], args[0], args[1])
        prefetch_lanes(builder, start, _F32, lanes.count)
        return context.get_dummy_value()

    return types.void(array, _index(index), lanes), generate


@intrinsic
def load(_typing: Any, array: Any, index: Any, lanes: Any) -> Any:
    """The `lanes` float32 of the flat `array` from `index` on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = pointer(context, builder, signature.args[0], args[0], args[1])
        return load_lanes(builder, start, _F32, lanes, args[2])

    return Vector(lanes.count)(array, _index(index), lanes), generate


@intrinsic
def store(_typing: Any, array: Any, index: Any, vector: Any, lanes: Any = None) -> Any:
    """Write `vector`, or only those `lanes` of it, into the flat float32 `array` from `index` on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = pointer(context, builder, signature.args[0], args[0], args[1])
        store_lanes(builder, start, args[2], lanes, args[3])
        return context.get_dummy_value()

    return types.void(array, _index(index), vector, types.none if lanes is None else lanes), generate


def load_lanes(builder: Any, start: Any, element: Any, lanes: Any, is_tail: Any) -> Any:
    """The lanes from the pointer `start` on, a vector of `element` (an LLVM type); lanes missing in a tail are 0."""

    def part(count: int) -> Any:
        kind = ir.VectorType(element, count)
        return builder.load(builder.bitcast(start, kind.as_pointer()), align=_bytes(element))

    if not isinstance(lanes, PieceType):
        return part(lanes.count)
    with builder.if_else(is_tail) as (then, otherwise):
        with then:
            zero = ir.Constant(ir.VectorType(element, lanes.tail), None)
            places = [*range(lanes.tail), *[lanes.tail] * (lanes.count - lanes.tail)]
            short = builder.shuffle_vector(
                part(lanes.tail), zero, ir.Constant(ir.VectorType(_I32, lanes.count), places)
            )
            from_tail = builder.block
        with otherwise:
            whole = part(lanes.count)
            from_whole = builder.block
    result = builder.phi(whole.type)
    result.add_incoming(short, from_tail)
    result.add_incoming(whole, from_whole)
    return result


def store_lanes(builder: Any, start: Any, vector: Any, lanes: Any, is_tail: Any) -> None:
    """Write a vector's lanes from the pointer `start` on; those missing in a tail are left alone."""
    element = vector.type.element

    def part(lanes: Any) -> None:
        builder.store(lanes, builder.bitcast(start, lanes.type.as_pointer()), align=_bytes(element))

    if not isinstance(lanes, PieceType):
        part(vector)
        return
    with builder.if_else(is_tail) as (then, otherwise):
        with then:
            places = ir.Constant(ir.VectorType(_I32, lanes.tail), list(range(lanes.tail)))
            part(builder.shuffle_vector(vector, vector, places))
        with otherwise:
            part(vector)


def _bytes(element: Any) -> int:
    return 4 if element is _F32 else element.width // 8


@intrinsic
def splat(_typing: Any, value: Any, lanes: Any) -> Any:
    """A vector whose every lane is the float32 `value`."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return splat_lanes(builder, args[0], lanes.count)

    return Vector(lanes.count)(types.float32, lanes), generate


@intrinsic
def splat_bits(_typing: Any, value: Any, lanes: Any) -> Any:
    """A vector whose every lane holds the bits of the int32 `value`: to be chosen and stored, not computed with."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return splat_lanes(builder, builder.bitcast(args[0], _F32), lanes.count)

    return Vector(lanes.count)(types.int32, lanes), generate


@intrinsic
def where_greater(_typing: Any, a: Any, b: Any, yes: Any, no: Any) -> Any:
    """The lanes of `yes` where ``a > b``, else those of `no`; nothing is greater than NaN, nor NaN than anything."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[2], args[3])

    return a(a, b, yes, no), generate


@intrinsic
def fma(_typing: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return fma_lanes(builder, *args)

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
