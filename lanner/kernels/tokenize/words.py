"""Eight characters at once: unaligned 64-bit loads and byte-parallel arithmetic on them.

All constants repeat one byte eight times; the first character is the lowest byte (little-endian). The method is the
usual "SIMD within a register" one: bytes below 0x80 can be compared by an addition whose carry lands in their own
top bit.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

ONES = np.uint64(0x0101010101010101)
TOPS = ONES * np.uint64(0x80)


@intrinsic
def load64(typing: Any, array: Any, at: Any) -> Any:
    """The 8 bytes of the uint8 `array` from index `at` as one uint64, whatever the alignment; no bounds check."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        word = ir.IntType(64)
        loaded = builder.load(builder.bitcast(builder.gep(data, [args[1]]), word.as_pointer()))
        loaded.align = 1
        return loaded

    return types.uint64(array, types.int64), generate


@intrinsic
def byte(typing: Any, array: Any, at: Any) -> Any:
    """array[at] of a uint8 array for at >= 0, without the check for negative indices that indexing makes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.load(builder.gep(data, [args[1]]))

    return types.uint8(array, types.int64), generate


@intrinsic
def trailing_zeros(typing: Any, word: Any) -> Any:
    """Number of zero bits below the lowest set bit of a uint64; 64 for 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@numba.njit(nogil=True, cache=True, inline="always")
def digit_marks(word: Any) -> Any:
    """0x80 in every byte that is a decimal digit, 0 in the others."""
    low = word & ~TOPS
    at_least_0 = low + ONES * np.uint64(0x80 - 0x30)
    above_9 = low + ONES * np.uint64(0x80 - 0x3A)
    return at_least_0 & ~above_9 & ~word & TOPS


@numba.njit(nogil=True, cache=True, inline="always")
def letter_marks(word: Any) -> Any:
    """0x80 in every byte that is one of a-f or A-F, 0 in the others."""
    upper = word & ~TOPS & (ONES * np.uint64(0xDF))
    at_least_a = upper + ONES * np.uint64(0x80 - 0x41)
    above_f = upper + ONES * np.uint64(0x80 - 0x47)
    return at_least_a & ~above_f & ~word & TOPS


@numba.njit(nogil=True, cache=True, inline="always")
def decimal_value(word: Any) -> Any:
    """The number written by eight decimal digits; zero bytes in front count as zeros."""
    word &= ONES * np.uint64(0x0F)
    word = (word * np.uint64(10) + (word >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    word = (word * np.uint64(100) + (word >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return (word * np.uint64(10000) + (word >> np.uint64(32))) & np.uint64(0xFFFFFFFF)


@numba.njit(nogil=True, cache=True, inline="always")
def hex_value(word: Any, letters: Any) -> Any:
    """The number written by eight hexadecimal digits whose letters are marked by `letters`."""
    word = (word & (ONES * np.uint64(0x0F))) + (letters >> np.uint64(7)) * np.uint64(9)
    word = ((word << np.uint64(4)) | (word >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    word = ((word << np.uint64(8)) | (word >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return ((word << np.uint64(16)) | (word >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
