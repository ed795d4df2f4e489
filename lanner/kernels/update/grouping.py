"""Grouping the ids of a table by row: one 64-bit word an id, the row in the high bits, sorted by row.

The radix sort costs O(ids), whatever the number of rows, and keeps equal rows in the order of their ids, so that
sums over a group do not depend on threads. Two words are possible for the low bits:

plain     where the gradient of the id starts (in floats); enough for sum pooling
detailed  the number of the id within the table; side arrays `starts`, `scales` and `places` hold the rest
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from lanner.kernels.layout import COLUMN, FEATURE, MAX, MEAN, POOLING, ROWS
from lanner.kernels.simd import get, put

_DIGIT = 11  # most bits sorted by in one pass: 2,048 counters stay in the first-level cache
_BLOCK = 6  # log2 of the neighbouring rows that stay with one thread, so that threads share no cache line


@nb.njit(nogil=True, cache=True)
def group(
    task: Any,
    layout: Any,
    values: Any,
    offsets: Any,
    factors: Any,
    batch: int,
    width: int,
    words: Any,
    spare: Any,
    starts: Any,
    scales: Any,
    places: Any,
) -> tuple[Any, int]:
    """The sorted words of one task, and their number.

    A task is (first line, last line, part, parts, row bits) of one table: it takes the ids whose row falls to
    `part` of `parts` (a power of two). `starts`, `scales` and `places` are empty for plain words. `offsets` and
    `factors` may be empty: one-hot bags, no factors. `words` and `spare` have room for all ids of the table.
    """
    first, last, part, parts, bits = task[0], task[1], task[2], task[3], task[4]
    detailed, count = starts.size > 0, 0
    for line in range(first, last):
        bag, rows, start = layout[line, FEATURE] * batch, layout[line, ROWS], layout[line, COLUMN]
        mean, maximum = layout[line, POOLING] == MEAN, layout[line, POOLING] == MAX
        for sample in range(batch):
            begin, end = bag + sample, bag + sample + 1
            if offsets.size:
                begin, end = get(offsets, begin), get(offsets, end)
            share = np.float32(1.0 / max(end - begin, 1)) if mean else np.float32(1.0)
            for position in range(begin, end):
                row = _row(values, position, rows)
                low = count if detailed else start
                put(words, count, (np.uint64(row) << np.uint64(64 - bits)) | np.uint64(low))
                if detailed:
                    put(starts, count, start)
                    put(scales, count, share * get(factors, position) if factors.size else share)
                    put(places, count, np.int32(position - begin if maximum else -1))
                count += (row >> _BLOCK) & (parts - 1) == part
            start += width
    return _sort(words, spare, count, 64 - bits, bits), count


@nb.njit(nogil=True, cache=True, inline="always")
def _row(values: Any, position: int, rows: int) -> int:
    """The row of an id; row 0 for one out of range, as in lookup."""
    row = np.int64(get(values, position))
    return 0 if np.uint64(row) >= np.uint64(rows) else row


@nb.njit(nogil=True, cache=True)
def _sort(words: Any, spare: Any, count: int, shift: int, bits: int) -> Any:
    """The first `count` words sorted by their `bits` bits from `shift` on; in `words` or in `spare`."""
    widest = 4
    while widest < _DIGIT and (1 << widest) < count:
        widest += 1
    passes = max((bits + widest - 1) // widest, 1)
    digit = (bits + passes - 1) // passes
    counters = np.empty((1 << digit) + 1, np.int64)
    mask = np.uint64((1 << digit) - 1)
    for turn in range(passes):
        low = np.uint64(shift + turn * digit)
        counters[:] = 0
        for i in range(count):
            at = ((get(words, i) >> low) & mask) + np.uint64(1)
            put(counters, at, get(counters, at) + 1)
        for value in range(1 << digit):
            counters[value + 1] += counters[value]
        for i in range(count):
            word = get(words, i)
            at = (word >> low) & mask
            place = get(counters, at)
            put(spare, place, word)
            put(counters, at, place + 1)
        words, spare = spare, words
    return words
