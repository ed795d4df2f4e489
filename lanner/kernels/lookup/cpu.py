"""Embedding lookup on the CPU: rows summed in vector registers, the rows of later ids fetched ahead."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from lanner.kernels.layout import FEATURE, FIELDS, FIRST_ROW, MAX, MEAN, NONE, OUT, POOLING, ROWS, STRIDE
from lanner.kernels.simd import fma, get, load, prefetch_row, splat, store, width

_AHEAD = 24  # ids between the row fetched and the row summed


@nb.njit(nogil=True, cache=True)
def one_hot(
    begin: int,
    end: int,
    lanes: Any,
    weights: Any,
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
    starts = np.empty(ahead * lines, np.int64)  # where the rows of samples s .. s + ahead - 1 start
    for part in range(0, dim, width(lanes)):
        for sample in range(begin, min(begin + ahead, end)):
            for line in range(lines):
                row, outside = _joint_row(layout, line, values, batch, sample)
                stray |= outside
                starts[(sample - begin) * lines + line] = row * dim + part
                prefetch_row(weights, row * dim + part, lanes)
        at = 0
        for sample in range(begin, end):
            for line in range(lines):
                start = get(starts, at)
                row, outside = _joint_row(layout, line, values, batch, min(sample + ahead, end - 1))
                stray |= outside
                starts[np.uint64(at)] = row * dim + part
                prefetch_row(weights, row * dim + part, lanes)
                vector = load(weights, start, lanes)
                if factors.size:
                    place = get(layout, line * FIELDS + FEATURE) * batch + sample
                    vector = vector * splat(get(factors, place), lanes)
                start = get(layout, line * FIELDS + OUT) + sample * get(layout, line * FIELDS + STRIDE)
                store(out, start + part, vector)
                at += 1
            if at == starts.size:
                at = 0
    if stray:
        strays[0] = True


@nb.njit(nogil=True, cache=True, inline="always")
def _joint_row(layout: Any, line: int, values: Any, batch: int, sample: int) -> tuple[int, bool]:
    """The row of the joint table that a one-hot id names, and whether the id is out of range (then row 0)."""
    row = np.int64(get(values, get(layout, line * FIELDS + FEATURE) * batch + sample))
    outside = np.uint64(row) >= np.uint64(get(layout, line * FIELDS + ROWS))
    return get(layout, line * FIELDS + FIRST_ROW) + (0 if outside else row), outside


@nb.njit(nogil=True, cache=True)
def pooled(
    begin: int,
    end: int,
    lanes: Any,
    weights: Any,
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
    """Bags begin..end of the K * batch bags, line after line of the layout; sets strays[0] for an id out of range."""
    while begin < end:
        line = begin // batch
        first = begin - line * batch
        last = min(end - line * batch, batch)
        pooling, bag = layout[line, POOLING], layout[line, FEATURE] * batch
        first_row, rows, place, stride = (
            layout[line, FIRST_ROW], layout[line, ROWS], layout[line, OUT], layout[line, STRIDE]
        )  # fmt: skip
        stray = False
        if pooling == MAX:
            stray = _maxima(
                weights, dim, values, offsets, factors, bag, first, last, first_row, rows, out, place, stride, winners
            )
        elif pooling == NONE:
            ids, until = get(offsets, bag + first), get(offsets, bag + last)
            place += (ids - get(offsets, bag)) * stride
            for part in range(0, dim, width(lanes)):
                stray |= _copies(
                    lanes, weights, dim, part, values, factors, ids, until, first_row, rows, out, place, stride
                )
        else:
            for part in range(0, dim, width(lanes)):
                stray |= _sums(
                    lanes, weights, dim, part, values, offsets, factors, bag, first, last,
                    first_row, rows, pooling == MEAN, out, place, stride,
                )  # fmt: skip
        if stray:
            strays[0] = True
        begin = line * batch + last


@nb.njit(nogil=True, cache=True)
def _sums(
    lanes: Any,
    weights: Any,
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
    stray, base, limit = False, first_row * dim + part, np.uint64(rows)
    final = get(offsets, bag + last) - 1
    for sample in range(first, last):
        start, stop = get(offsets, bag + sample), get(offsets, bag + sample + 1)
        row_sum = splat(np.float32(0.0), lanes)
        for position in range(start, stop):
            prefetch_row(weights, base + np.int64(get(values, min(position + _AHEAD, final))) * dim, lanes)
            row = np.int64(get(values, position))
            outside = np.uint64(row) >= limit
            stray |= outside
            row = 0 if outside else row
            vector = load(weights, base + row * dim, lanes)
            factor = get(factors, position) if factors.size else np.float32(1.0)
            row_sum = fma(vector, splat(factor, lanes), row_sum)
        if mean and stop - start > 1:
            row_sum = row_sum * splat(np.float32(1.0) / np.float32(stop - start), lanes)
        store(out, place + sample * stride + part, row_sum)
    return stray


@nb.njit(nogil=True, cache=True)
def _copies(
    lanes: Any,
    weights: Any,
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
    stray, base, limit = False, first_row * dim + part, np.uint64(rows)
    for position in range(begin, end):
        prefetch_row(weights, base + np.int64(get(values, min(position + _AHEAD, end - 1))) * dim, lanes)
        row = np.int64(get(values, position))
        outside = np.uint64(row) >= limit
        stray |= outside
        vector = load(weights, base + (0 if outside else row) * dim, lanes)
        if factors.size:
            vector = vector * splat(get(factors, position), lanes)
        store(out, place + (position - begin) * stride + part, vector)
    return stray


@nb.njit(nogil=True, cache=True)
def _maxima(
    weights: Any,
    dim: int,
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
    stray = False
    for sample in range(first, last):
        start, stop = get(offsets, bag + sample), get(offsets, bag + sample + 1)
        at = place + sample * stride
        for d in range(dim):
            out[at + d] = np.float32(0.0)
            if winners.size:
                winners[at + d] = -1
        for position in range(start, stop):
            row = np.int64(values[position])
            outside = row < 0 or row >= rows
            stray |= outside
            base = (first_row + (0 if outside else row)) * dim
            for d in range(dim):
                value = weights[base + d]
                if factors.size:
                    value *= factors[position]
                if position == start or value > out[at + d]:
                    out[at + d] = value
                    if winners.size:
                        winners[at + d] = position - start
    return stray


@nb.njit(nogil=True, cache=True)
def offsets_fit(offsets: Any, count: int) -> bool:
    """Whether offsets (at least one) start at 0, never fall and end at `count`."""
    falling = 0
    for i in range(1, offsets.size):
        falling += offsets[i] < offsets[i - 1]
    return falling == 0 and offsets[0] == 0 and offsets[-1] == count
