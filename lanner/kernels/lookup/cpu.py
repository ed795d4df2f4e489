"""Embedding lookup on the CPU: rows summed in vector registers, the rows of later ids fetched ahead."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from lanner.kernels.formats.cpu import fetch_row, load_row
from lanner.kernels.layout import FEATURE, FIELDS, FIRST_ROW, MAX, MEAN, NONE, OUT, POOLING, ROWS, STRIDE
from lanner.kernels.simd import fma, get, lanes_from, splat, splat_bits, store, where_greater, width

_AHEAD = 24  # ids between the row fetched and the row summed


@nb.njit(nogil=True, cache=True)
def one_hot(
    begin: int,
    end: int,
    lanes: Any,
    weights: Any,
    scales: Any,
    dim: int,
    layout: Any,
    values: Any,
    factors: Any,
    batch: int,
    out: Any,
    strays: Any,
) -> None:
    """Copy the rows of samples begin..end; sets strays[0] for an id out of range.

    Sample by sample, so that `out` is written in order (rows written far apart cost half as much again), with the
    rows of the next samples being fetched meanwhile.
    """
    lines, stray = layout.shape[0], False
    ahead = (_AHEAD + lines - 1) // lines  # samples
    rows = np.empty(ahead * lines, np.int64)  # of samples s .. s + ahead - 1
    for part in range(0, dim, width(lanes)):
        piece = lanes_from(lanes, part, dim)
        for sample in range(begin, min(begin + ahead, end)):
            for line in range(lines):
                row, outside = _one_hot_row(layout, line, values, batch, sample)
                stray |= outside
                rows[(sample - begin) * lines + line] = row
                fetch_row(weights, scales, row, dim, part, piece)
        at = 0
        for sample in range(begin, end):
            for line in range(lines):
                vector = load_row(weights, scales, get(rows, at), dim, part, piece)
                row, outside = _one_hot_row(layout, line, values, batch, min(sample + ahead, end - 1))
                stray |= outside
                rows[np.uint64(at)] = row
                fetch_row(weights, scales, row, dim, part, piece)
                if factors.size:
                    place = get(layout, line * FIELDS + FEATURE) * batch + sample
                    vector = vector * splat(get(factors, place), lanes)
                start = get(layout, line * FIELDS + OUT) + sample * get(layout, line * FIELDS + STRIDE)
                store(out, start + part, vector, piece)
                at += 1
            if at == rows.size:
                at = 0
    if stray:
        strays[0] = True


@nb.njit(nogil=True, cache=True, inline="always")
def _one_hot_row(layout: Any, line: int, values: Any, batch: int, sample: int) -> tuple[int, bool]:
    """See `_row_of`."""
    place = get(layout, line * FIELDS + FEATURE) * batch + sample
    row, outside = _row_of(values, place, get(layout, line * FIELDS + FIRST_ROW), get(layout, line * FIELDS + ROWS))
    return row, outside


@nb.njit(nogil=True, cache=True, inline="always")
def _row_of(values: Any, position: int, first_row: int, rows: int) -> tuple[int, bool]:
    """The row of the joint table that an id names, and whether the id is out of range (then row 0 of its table)."""
    row = np.int64(get(values, position))
    outside = np.uint64(row) >= np.uint64(rows)
    return first_row + (0 if outside else row), outside


@nb.njit(nogil=True, cache=True)
def pooled(
    begin: int,
    end: int,
    lanes: Any,
    weights: Any,
    scales: Any,
    dim: int,
    layout: Any,
    values: Any,
    offsets: Any,
    factors: Any,
    batch: int,
    out: Any,
    winners: Any,
    strays: Any,
) -> None:
    """Bags begin..end of the K * batch bags, line after line of the layout; sets strays[0] for an id out of range.

    `winners`, empty or like `out`, takes int32 as the bits of float32.
    """
    while begin < end:
        line = begin // batch
        first = begin - line * batch
        last = min(end - line * batch, batch)
        pooling, bag = layout[line, POOLING], layout[line, FEATURE] * batch
        first_row, rows, place, stride = (
            layout[line, FIRST_ROW], layout[line, ROWS], layout[line, OUT], layout[line, STRIDE]
        )  # fmt: skip
        ids, until = get(offsets, bag + first), get(offsets, bag + last)
        skipped = (ids - get(offsets, bag)) * stride
        stray = False
        for part in range(0, dim, width(lanes)):
            piece = lanes_from(lanes, part, dim)
            if pooling == MAX:
                stray |= _maxima(
                    lanes, piece, weights, scales, dim, part, values, offsets, factors, bag, first, last,
                    first_row, rows, out, place, stride, winners,
                )  # fmt: skip
            elif pooling == NONE:
                stray |= _copies(
                    lanes, piece, weights, scales, dim, part, values, factors, ids, until,
                    first_row, rows, out, place + skipped, stride,
                )  # fmt: skip
            else:
                stray |= _sums(
                    lanes, piece, weights, scales, dim, part, values, offsets, factors, bag, first, last,
                    first_row, rows, pooling == MEAN, out, place, stride,
                )  # fmt: skip
        if stray:
            strays[0] = True
        begin = line * batch + last


@nb.njit(nogil=True, cache=True)
def _sums(
    lanes: Any,
    piece: Any,
    weights: Any,
    scales: Any,
    dim: int,
    part: int,
    values: Any,
    offsets: Any,
    factors: Any,
    bag: int,
    first: int,
    last: int,
    first_row: int,
    rows: int,
    mean: bool,
    out: Any,
    place: int,
    stride: int,
) -> bool:
    """Sums or means of samples first..last of one feature, columns part.. of each row."""
    stray, final = False, get(offsets, bag + last) - 1
    for sample in range(first, last):
        start, stop = get(offsets, bag + sample), get(offsets, bag + sample + 1)
        row_sum = splat(np.float32(0.0), lanes)
        for position in range(start, stop):
            later = first_row + np.int64(get(values, min(position + _AHEAD, final)))
            fetch_row(weights, scales, later, dim, part, piece)
            row, outside = _row_of(values, position, first_row, rows)
            stray |= outside
            vector = load_row(weights, scales, row, dim, part, piece)
            factor = get(factors, position) if factors.size else np.float32(1.0)
            row_sum = fma(vector, splat(factor, lanes), row_sum)
        if mean and stop - start > 1:
            row_sum = row_sum * splat(np.float32(1.0) / np.float32(stop - start), lanes)
        store(out, place + sample * stride + part, row_sum, piece)
    return stray


@nb.njit(nogil=True, cache=True)
def _copies(
    lanes: Any,
    piece: Any,
    weights: Any,
    scales: Any,
    dim: int,
    part: int,
    values: Any,
    factors: Any,
    begin: int,
    end: int,
    first_row: int,
    rows: int,
    out: Any,
    place: int,
    stride: int,
) -> bool:
    """The rows of ids begin..end, columns part.. of each, one after another from `place` on."""
    stray = False
    for position in range(begin, end):
        later = first_row + np.int64(get(values, min(position + _AHEAD, end - 1)))
        fetch_row(weights, scales, later, dim, part, piece)
        row, outside = _row_of(values, position, first_row, rows)
        stray |= outside
        vector = load_row(weights, scales, row, dim, part, piece)
        if factors.size:
            vector = vector * splat(get(factors, position), lanes)
        store(out, place + (position - begin) * stride + part, vector, piece)
    return stray


@nb.njit(nogil=True, cache=True)
def _maxima(
    lanes: Any,
    piece: Any,
    weights: Any,
    scales: Any,
    dim: int,
    part: int,
    values: Any,
    offsets: Any,
    factors: Any,
    bag: int,
    first: int,
    last: int,
    first_row: int,
    rows: int,
    out: Any,
    place: int,
    stride: int,
    winners: Any,
) -> bool:
    """Maxima of samples first..last of one feature, and which place in the bag each came from."""
    stray, final = False, get(offsets, bag + last) - 1
    for sample in range(first, last):
        start, stop = get(offsets, bag + sample), get(offsets, bag + sample + 1)
        best, places = splat(np.float32(0.0), lanes), splat_bits(np.int32(-1), lanes)
        for position in range(start, stop):
            later = first_row + np.int64(get(values, min(position + _AHEAD, final)))
            fetch_row(weights, scales, later, dim, part, piece)
            row, outside = _row_of(values, position, first_row, rows)
            stray |= outside
            vector = load_row(weights, scales, row, dim, part, piece)
            if factors.size:
                vector = vector * splat(get(factors, position), lanes)
            here = splat_bits(np.int32(position - start), lanes)
            if position == start:
                best, places = vector, here
            else:
                places = where_greater(vector, best, here, places)
                best = where_greater(vector, best, vector, best)
        store(out, place + sample * stride + part, best, piece)
        if winners.size:
            store(winners, place + sample * stride + part, places, piece)
    return stray


@nb.njit(nogil=True, cache=True)
def offsets_fit(offsets: Any, count: int) -> bool:
    """Whether offsets (at least one) start at 0, never fall and end at `count`."""
    falling = 0
    for i in range(1, offsets.size):
        falling += offsets[i] < offsets[i - 1]
    return falling == 0 and offsets[0] == 0 and offsets[-1] == count
