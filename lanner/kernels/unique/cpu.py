"""Distinct ids in Numba: a hash table for each segment, in slots that are never cleared.

A slot is a key and a tag. Tags rise from one segment to the next and hold the place of the key in its segment, so
a slot that another segment has written is known by its small tag, and counts as empty.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from lanner.kernels.hashing.slots import scrambled
from lanner.kernels.simd import get, prefetch, put

_AHEAD = 16
_ONE = np.uint64(1)


def words_for(count: int) -> int:
    """Words of the slots that serve a segment of `count` ids."""
    return 2 * int(_capacity(count))


@nb.njit(nogil=True, cache=True)
def _capacity(count: int) -> int:
    """Slots, a power of two, of which `count` keys fill at most half."""
    capacity = 16
    while capacity < 2 * count:
        capacity *= 2
    return capacity


@nb.njit(nogil=True, cache=True)
def unique(
    begin: int,
    end: int,
    values: Any,
    bounds: Any,
    order: Any,
    firsts: Any,
    starts: Any,
    slots: Any,
    tag: Any,
    distinct: Any,
    inverse: Any,
    counts: Any,
) -> None:
    """Work through the segments begin..end-1.

    Segment s has the pieces order[firsts[s]:firsts[s + 1]]; its distinct ids go to distinct[starts[s]:]. `slots` has
    room for the largest segment (`words_for`); tag[0] is the highest tag in `slots`.
    """
    for segment in range(begin, end):
        mask, room = np.uint64(_capacity(starts[segment + 1] - starts[segment]) - 1), distinct[starts[segment] :]
        count = 0
        for at in range(firsts[segment], firsts[segment + 1]):
            first, last = bounds[order[at]], bounds[order[at] + 1]
            count = _add(values[first:last], slots, mask, tag[0], room, count, inverse[first:last])
        counts[segment] = count
        tag[0] += count


@nb.njit(nogil=True, inline="always")
def _home(key: Any, mask: Any) -> Any:
    """Index of the key word of the slot where the search for `key` begins."""
    return (scrambled(key) & mask) << _ONE


@nb.njit(nogil=True)
def _add(values: Any, slots: Any, mask: Any, tag: int, distinct: Any, count: int, places: Any) -> int:
    """Number the ids of one piece; the number of distinct ids so far."""
    size, wrap = values.shape[0], mask << _ONE | _ONE
    for i in range(size):
        prefetch(slots, _home(np.int64(get(values, min(i + _AHEAD, size - 1))), mask))
        key = np.int64(get(values, i))
        at = _home(key, mask)
        while get(slots, at | _ONE) > tag and get(slots, at) != key:
            at = (at + np.uint64(2)) & wrap
        place = get(slots, at | _ONE) - tag - 1
        if place < 0:
            place = count
            put(slots, at, key)
            put(slots, at | _ONE, tag + 1 + place)
            put(distinct, place, key)
            count += 1
        put(places, i, place)
    return count


@nb.njit(nogil=True, cache=True)
def closed_up(distinct: Any, starts: Any, counts: Any) -> Any:
    """`distinct` without the gaps between the segments, in place."""
    total = 0
    for segment in range(counts.shape[0]):
        for i in range(counts[segment]):
            distinct[total + i] = distinct[starts[segment] + i]
        total += counts[segment]
    return distinct[:total]
