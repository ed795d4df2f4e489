"""Rows of any format to vectors of float32 and back, for kernels. See `lanner.kernels.simd` for lanes and parts.

16-bit rows are stored with stochastic rounding: up with the probability that makes the expected value right, so that
steps far below a weight's precision add up instead of being lost (Gupta, Agrawal, Gopalakrishnan and Narayanan,
"Deep Learning with Limited Numerical Precision", 2015). The random bits are a function of (seed, row, column) alone,
never of threads or of the order of the work.

Finite values beyond a format's range become its largest finite one: a row that holds an infinity makes everything
after it infinite, one that is merely too large can train back. Infinities and NaN stay what they are.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from lanner.kernels.lanes import Vector
from lanner.kernels.simd import (
    fma_lanes,
    load_lanes,
    pointer,
    prefetch_lanes,
    splat_lanes,
    store_lanes,
)

_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_F16, _F32 = ir.HalfType(), ir.FloatType()
_ELEMENTS = {types.float32: _F32, types.uint16: _I16, types.int16: _I16, types.uint8: ir.IntType(8)}
_INFINITY = 0x7F800000  # of float32
_CHANCE = types.containers.Tuple((types.uint64, types.int64))

# (bits of the largest finite value, of infinity, of NaN)
_SPECIAL = {types.uint16: (0x7BFF, 0x7C00, 0x7E00), types.int16: (0x7F7F, 0x7F80, 0x7FC0)}


@intrinsic
def load_row(_typing: Any, weights: Any, scales: Any, row: Any, dim: Any, part: Any, lanes: Any) -> Any:
    """Columns part.. of a row as a float32 vector; `weights` [rows, dim] and `scales` [rows, 2] are flat."""
    element = _element(weights)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        weights_, scales_, row_, dim_, part_, lanes_ = args
        at = builder.add(builder.mul(row_, dim_), part_)
        start = pointer(context, builder, signature.args[0], weights_, at)
        stored = load_lanes(builder, start, element, lanes, lanes_)
        widened = _widen(builder, stored, weights.dtype)
        if weights.dtype != types.uint8:
            return widened
        at = builder.mul(row_, _I64(2))
        scale = builder.load(pointer(context, builder, signature.args[1], scales_, at))
        offset = builder.load(pointer(context, builder, signature.args[1], scales_, builder.add(at, _I64(1))))
        return fma_lanes(
            builder, widened, splat_lanes(builder, scale, lanes.count), splat_lanes(builder, offset, lanes.count)
        )

    return Vector(lanes.count)(weights, scales, types.int64, types.int64, types.int64, lanes), generate


@intrinsic
def fetch_row(_typing: Any, weights: Any, scales: Any, row: Any, dim: Any, part: Any, lanes: Any) -> Any:
    """Ask for the cache lines that `load_row` will read (never faults); see `simd.prefetch_row`."""
    element = _element(weights)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        weights_, scales_, row_, dim_, part_, _ = args
        at = builder.add(builder.mul(row_, dim_), part_)
        prefetch_lanes(builder, pointer(context, builder, signature.args[0], weights_, at), element, lanes.count)
        if weights.dtype == types.uint8:
            at = builder.mul(row_, _I64(2))
            prefetch_lanes(builder, pointer(context, builder, signature.args[1], scales_, at), _F32, 2)
        return context.get_dummy_value()

    return types.void(weights, scales, types.int64, types.int64, types.int64, lanes), generate


@intrinsic
def store_row(_typing: Any, weights: Any, row: Any, dim: Any, part: Any, vector: Any, lanes: Any, chance: Any) -> Any:
    """Write `vector` to columns part.. of a row.

    16-bit rows are rounded at random by `chance`: a random uint64 of the row, and its first column, int64.
    """
    if weights.dtype not in (types.float32, *_SPECIAL):
        raise TypingError(f"rows of {weights.dtype} are read-only")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        weights_, row_, dim_, part_, vector_, lanes_, chance_ = args
        at = builder.add(builder.mul(row_, dim_), part_)
        start = pointer(context, builder, signature.args[0], weights_, at)
        if weights.dtype != types.float32:
            column = builder.add(builder.extract_value(chance_, 1), part_)
            bits = _random_bits(builder, builder.extract_value(chance_, 0), column, vector.count)
            vector_ = _rounded(builder, vector_, bits, weights.dtype)
        store_lanes(builder, start, vector_, lanes, lanes_)
        return context.get_dummy_value()

    return types.void(weights, types.int64, types.int64, types.int64, vector, lanes, _CHANCE), generate


def _element(weights: Any) -> Any:
    if weights.dtype not in _ELEMENTS:
        raise TypingError(f"rows of {weights.dtype} are not known")
    return _ELEMENTS[weights.dtype]


def _widen(builder: Any, stored: Any, dtype: Any) -> Any:
    """A vector of float32 from one of the stored elements; of uint8, the steps above the offset."""
    count = stored.type.count
    floats, integers = ir.VectorType(_F32, count), ir.VectorType(_I32, count)
    if dtype == types.uint16:
        return builder.fpext(builder.bitcast(stored, ir.VectorType(_F16, count)), floats)
    if dtype == types.int16:
        return builder.bitcast(builder.shl(builder.zext(stored, integers), _all(16, count)), floats)
    return stored if dtype == types.float32 else builder.sitofp(builder.zext(stored, integers), floats)


def _random_bits(builder: Any, key: Any, first: Any, count: int) -> Any:
    """32 random bits a lane: its column (from `first` on) and the 64-bit key of its row and step, mixed.

    The mix is C. Wellons' "lowbias32" (2018), with the key's upper half added between its two products.
    """
    low = splat_lanes(builder, builder.trunc(key, _I32), count)
    high = splat_lanes(builder, builder.trunc(builder.lshr(key, _I64(32)), _I32), count)
    lanes = ir.Constant(ir.VectorType(_I32, count), list(range(count)))
    column = builder.add(splat_lanes(builder, builder.trunc(first, _I32), count), lanes)
    x = builder.xor(builder.mul(column, _all(0x9E3779B9, count)), low)
    x = builder.mul(builder.xor(x, builder.lshr(x, _all(16, count))), _all(0x7FEB352D, count))
    x = builder.add(builder.xor(x, builder.lshr(x, _all(15, count))), high)
    x = builder.mul(x, _all(0x846CA68B, count))
    return builder.xor(x, builder.lshr(x, _all(16, count)))


def _rounded(builder: Any, vector: Any, bits: Any, dtype: Any) -> Any:
    """The 16-bit patterns of a float32 vector, rounded by random bits."""
    count = vector.type.count
    word = builder.bitcast(vector, ir.VectorType(_I32, count))
    sign = builder.and_(builder.lshr(word, _all(16, count)), _all(0x8000, count))
    size = builder.and_(word, _all(0x7FFFFFFF, count))
    half = _half if dtype == types.uint16 else _brain
    most, infinity, nan = (_all(value, count) for value in _SPECIAL[dtype])
    rounded = half(builder, size, bits, count)
    rounded = builder.select(builder.icmp_unsigned("<", rounded, most), rounded, most)
    special = builder.select(builder.icmp_unsigned(">", size, _all(_INFINITY, count)), nan, infinity)
    finite = builder.icmp_unsigned("<", size, _all(_INFINITY, count))
    rounded = builder.or_(builder.select(finite, rounded, special), sign)
    return builder.trunc(rounded, ir.VectorType(_I16, count))


def _brain(builder: Any, size: Any, bits: Any, count: int) -> Any:
    """bfloat16 is the upper half of a float32: the 16 bits to be cut off carry over with their probability."""
    dither = builder.and_(bits, _all(0xFFFF, count))
    return builder.lshr(builder.add(size, dither), _all(16, count))


def _half(builder: Any, size: Any, bits: Any, count: int) -> Any:
    """float16 loses 13 bits of the fraction; below 2^-14 it is a multiple of 2^-24, found to 20 bits behind that."""
    dither = builder.and_(bits, _all(0x1FFF, count))
    normal = builder.lshr(builder.add(size, dither), _all(13, count))
    normal = builder.sub(normal, _all((127 - 15) << 10, count))
    smallest = _all(0x38800000, count)  # 2^-14
    small = builder.icmp_unsigned("<", size, smallest)
    value = builder.bitcast(builder.select(small, size, smallest), ir.VectorType(_F32, count))
    steps = builder.fptosi(builder.fmul(value, ir.Constant(value.type, [2.0**44] * count)), size.type)
    tiny = builder.lshr(builder.add(steps, builder.lshr(bits, _all(12, count))), _all(20, count))
    return builder.select(small, tiny, normal)


def _all(value: int, count: int) -> Any:
    return ir.Constant(ir.VectorType(_I32, count), [value] * count)
