"""Grouping the ids of a table by row: one 64-bit word an id, the row in the high bits, sorted by row.

The low bits number a row of `packed`, where the gradients of the table's bags are laid out one after another. They
are read in the order of the rows, that is at random: in one dense block on huge pages that is twice as fast as in
the gradient of the whole batch.

The radix sort costs O(ids), whatever the number of rows, and keeps equal rows in the order of their ids, so that
sums over a group do not depend on threads.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from lanner.kernels.lanes import Lanes
from lanner.kernels.layout import FEATURE, MAX, MEAN, NONE, OUT, POOLING, ROWS, STRIDE
from lanner.kernels.simd import get, load, prefetch, put, splat, store

_DIGIT = 11  # most bits sorted by in one pass: 2,048 counters stay in the first-level cache
_BLOCK = 6  # log2 of the neighbouring rows that stay with one thread, so that threads share no cache line
_LANES = Lanes(16)
_AHEAD = 6  # bags between the gradient fetched and the one packed


@nb.njit(nogil=True, cache=True)
def group(
    task: Any,
    layout: Any,
    values: Any,
    offsets: Any,
    factors: Any,
    gradient: Any,
    winners: Any,
    batch: int,
    dim: int,
    each: bool,
    words: Any,
    spare: Any,
    packed: Any,
) -> tuple[Any, int]:
    """The sorted words of one task, and their number.

    A task is (first line, last line, part, parts, row bits) of one table: it takes the ids whose row falls to
    `part` of `parts` (a power of two). `offsets`, `factors` and `winners` may be empty: one-hot bags, no factors, no
    max pooling. `each` says that ids of one bag have different gradients: there are factors, winners or lines that
    are not pooled. `words` and `spare` have room for all ids of the table, `packed` for a gradient for each bag of
    the table, or for each id where `each` is set.
    """
    first, last, part, parts, bits = task[0], task[1], task[2], task[3], task[4]
    count, shift = 0, np.uint64(64 - bits)
    for line in range(first, last):
        bag, rows, place, stride = (
            layout[line, FEATURE] * batch,
            layout[line, ROWS],
            layout[line, OUT],
            layout[line, STRIDE],
        )
        pooling = layout[line, POOLING]
        if each:
            count = _collect_each(
                values, offsets, factors, winners if pooling == MAX else winners[:0], bag, batch, rows, pooling, part,
                parts, shift, words, count, gradient, place, stride, packed, dim,
            )  # fmt: skip
        else:
            before, slot = count, (line - first) * batch
            count = _collect(values, offsets, bag, batch, rows, slot, part, parts, shift, words, count)
            lengths = offsets[bag : bag + batch + 1] if pooling == MEAN and offsets.size else offsets[:0]
            _pack_bags(words[before:count], shift, slot, batch, lengths, gradient, place, stride, packed, dim)
    return _sort(words, spare, count, 64 - bits, bits), count


@nb.njit(nogil=True, cache=True)
def _collect(
    values: Any,
    offsets: Any,
    bag: int,
    batch: int,
    rows: int,
    slot: int,
    part: int,
    parts: int,
    shift: Any,
    words: Any,
    count: int,
) -> int:
    """Write the words of one feature, whose bags have the packed rows slot..; the new number of words."""
    begin, end = bag, bag
    for sample in range(batch):
        begin, end = end, end + 1
        if offsets.size:
            begin, end = get(offsets, bag + sample), get(offsets, bag + sample + 1)
        for position in range(begin, end):
            row = _known_row(values, position, rows)
            put(words, count, (np.uint64(row) << shift) | np.uint64(slot + sample))
            count += (row >> _BLOCK) & (parts - 1) == part
    return count


@nb.njit(nogil=True, cache=True)
def _pack_bags(
    words: Any,
    shift: Any,
    slot: int,
    batch: int,
    lengths: Any,
    gradient: Any,
    place: int,
    stride: int,
    packed: Any,
    dim: int,
) -> None:
    """Copy the gradient of every bag that `words`, in order, name; divided by its length for mean pooling."""
    mask, seen = (np.uint64(1) << shift) - np.uint64(1), -1
    ahead = _AHEAD * max(words.size // batch, 1)
    for i in range(words.size):
        sample = np.int64(get(words, i) & mask) - slot
        if sample != seen:
            seen, share = sample, np.float32(1.0)
            later = np.int64(get(words, min(i + ahead, words.size - 1)) & mask) - slot
            for d in range(0, dim, 16):
                prefetch(gradient, place + later * stride + d)
            if lengths.size:
                share = np.float32(1.0) / np.float32(get(lengths, sample + 1) - get(lengths, sample))
            _pack(gradient, place + sample * stride, packed, (slot + sample) * dim, dim, share)


@nb.njit(nogil=True, cache=True)
def _collect_each(
    values: Any,
    offsets: Any,
    factors: Any,
    winners: Any,
    bag: int,
    batch: int,
    rows: int,
    pooling: int,
    part: int,
    parts: int,
    shift: Any,
    words: Any,
    count: int,
    gradient: Any,
    place: int,
    stride: int,
    packed: Any,
    dim: int,
) -> int:
    """Write the words of one feature, and pack a gradient for each id, with its factor or where it won."""
    begins = get(offsets, bag) if offsets.size else bag
    for sample in range(batch):
        begin, end, start = bag + sample, bag + sample + 1, place + sample * stride
        if offsets.size:
            begin, end = get(offsets, begin), get(offsets, end)
        for position in range(begin, end):
            row = _known_row(values, position, rows)
            if pooling == NONE:
                start = place + (position - begins) * stride
            if (row >> _BLOCK) & (parts - 1) == part:
                factor = np.float32(1.0 / (end - begin)) if pooling == MEAN else np.float32(1.0)
                if factors.size:
                    factor *= get(factors, position)
                _pack(gradient, start, packed, count * dim, dim, factor)
                if winners.size:
                    _keep_won(winners, start, packed, count * dim, dim, position - begin)
                put(words, count, (np.uint64(row) << shift) | np.uint64(count))
                count += 1
    return count


@nb.njit(nogil=True, cache=True, inline="always")
def _known_row(values: Any, position: int, rows: int) -> int:
    """The row of an id; row 0 for one out of range, as in lookup."""
    row = np.int64(get(values, position))
    return 0 if np.uint64(row) >= np.uint64(rows) else row


@nb.njit(nogil=True, cache=True, inline="always")
def _pack(gradient: Any, start: int, packed: Any, at: int, dim: int, factor: Any) -> None:
    """packed[at + d] = gradient[start + d] * factor for d < dim."""
    whole = dim & -16
    for d in range(0, whole, 16):
        store(packed, at + d, load(gradient, start + d, _LANES) * splat(factor, _LANES))
    for d in range(whole, dim):
        put(packed, at + d, get(gradient, start + d) * factor)


@nb.njit(nogil=True, cache=True)
def _keep_won(winners: Any, start: int, packed: Any, at: int, dim: int, place: int) -> None:
    """Zero the columns whose maximum came from another place of the bag."""
    for d in range(dim):
        if get(winners, start + d) != place:
            put(packed, at + d, np.float32(0.0))


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
