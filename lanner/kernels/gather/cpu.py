"""The gather loops in Numba: column after column, so that each loop reads one stream and writes one."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

U8, U16, U32, I32, I64, F32, F64 = range(7)


def _load_of(number: Any) -> Any:
    """An intrinsic that reads one value of the Numba type `number` at a memory address."""

    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = context.get_value_type(number)
            value = builder.load(builder.inttoptr(arguments[0], ir.PointerType(kind)))
            value.align = 1
            return value

        return number(types.int64), generate

    return load


_u8, _u16, _u32, _i32 = (_load_of(t) for t in (types.uint8, types.uint16, types.uint32, types.int32))
_i64, _f32, _f64 = (_load_of(t) for t in (types.int64, types.float32, types.float64))


@intrinsic
def _copy(typingctx: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy `size` bytes between two addresses."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.PointerType(ir.IntType(8))
        module = builder.module
        kind = ir.FunctionType(ir.VoidType(), [pointer, pointer, ir.IntType(64), ir.IntType(1)])
        name = "llvm.memcpy.p0i8.p0i8.i64"
        function = module.globals.get(name) or ir.Function(module, kind, name)
        target, source = (builder.inttoptr(value, pointer) for value in arguments[:2])
        builder.call(function, [target, source, arguments[2], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@numba.njit(inline="always")
def _id(address: Any, kind: Any, row: Any) -> Any:
    """The id of `row` in a column at `address`, as int64."""
    if kind == U8:
        return np.int64(_u8(address + row))
    if kind == U16:
        return np.int64(_u16(address + row * 2))
    if kind == U32:
        return np.int64(_u32(address + row * 4))
    if kind == I32:
        return np.int64(_i32(address + row * 4))
    return _i64(address + row * 8)


@numba.njit(inline="always")
def _end(address: Any, width: Any, row: Any) -> Any:
    """Entry `row` of a list column's offsets of `width` bytes."""
    return np.int64(_i32(address + row * 4)) if width == 4 else _i64(address + row * 8)


@numba.njit(nogil=True, cache=True)
def locate(rows: Any, starts: Any, segment: Any, row: Any) -> None:
    """Split row numbers into segment and row within it; neighbours in one segment are found at once."""
    current = 0
    for index in range(rows.size):
        number = rows[index]
        if number < starts[current] or number >= starts[current + 1]:
            low, high = 0, starts.size - 1
            while high - low > 1:
                middle = (low + high) >> 1
                if starts[middle] <= number:
                    low = middle
                else:
                    high = middle
            current = low
        segment[index] = current
        row[index] = number - starts[current]


@numba.njit(nogil=True, cache=True)
def copy_rows(segment: Any, row: Any, addresses: Any, width: Any, out: Any) -> None:
    target = np.int64(out.ctypes.data)
    for index in range(row.size):
        _copy(target + index * width, addresses[segment[index]] + row[index] * width, width)


@numba.njit(nogil=True, cache=True)
def gather_column(segment: Any, row: Any, addresses: Any, kind: Any, out: Any) -> None:
    for index in range(row.size):
        address, at = addresses[segment[index]], row[index]
        if kind == F32:
            out[index] = _f32(address + at * 4)
        elif kind == F64:
            out[index] = _f64(address + at * 8)
        else:
            out[index] = _id(address, kind, at)


@numba.njit(nogil=True, cache=True)
def gather_ids(segment: Any, row: Any, addresses: Any, kinds: Any, lasts: Any, out: Any) -> Any:
    """Returns (flat position, value) of the first id out of range, or (-1, 0)."""
    for feature in range(kinds.size):
        kind, last = kinds[feature], lasts[feature]
        fits = True
        for index in range(row.size):
            value = _id(addresses[segment[index], feature], kind, row[index])
            fits &= np.uint64(value) <= last
            out[feature, index] = value
        if not fits:
            for index in range(row.size):
                value = _id(addresses[segment[index], feature], kind, row[index])
                if np.uint64(value) > last:
                    return feature * row.size + index, value
    return -1, 0


@numba.njit(nogil=True, cache=True)
def bag_offsets(segment: Any, row: Any, ends: Any, widths: Any, counts: Any, offsets: Any) -> Any:
    """Running sum of the bags' lengths; returns the flat position of the first broken list, or -1."""
    total, bag = 0, 0
    for feature in range(widths.size):
        width = widths[feature]
        for index in range(row.size):
            length = 1
            if width:
                part, at = segment[index], row[index]
                begin, end = _end(ends[part, feature], width, at), _end(ends[part, feature], width, at + 1)
                if begin < 0 or end < begin or end > counts[part, feature]:
                    return bag
                length = end - begin
            total += length
            bag += 1
            offsets[bag] = total
    return -1


@numba.njit(nogil=True, cache=True)
def gather_bags(
    segment: Any, row: Any, addresses: Any, kinds: Any, lasts: Any, ends: Any, widths: Any, offsets: Any, out: Any
) -> Any:
    """Returns (flat position of the bag, value) of the first id out of range, or (-1, 0)."""
    bag = 0
    for feature in range(kinds.size):
        kind, last, width = kinds[feature], lasts[feature], widths[feature]
        for index in range(row.size):
            part, first = segment[index], row[index]
            if width:
                first = _end(ends[part, feature], width, first)
            for step in range(offsets[bag + 1] - offsets[bag]):
                value = _id(addresses[part, feature], kind, first + step)
                if np.uint64(value) > last:
                    return bag, value
                out[offsets[bag] + step] = value
            bag += 1
    return -1, 0
