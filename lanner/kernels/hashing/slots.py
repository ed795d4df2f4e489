"""Open addressing over one flat array of 16-byte slots (key, value), in Numba.

`slots` is int64 [2 * capacity], capacity a power of two; slot s holds its key at 2s and its value at 2s + 1. Value 0
is an empty slot, so every key is legal and one cache line answers a probe. Collisions go to the next slot. The slot
is taken from the low bits of the hash: growing then writes two sequential streams, and keys that come in the slot
order of another table do not pile up. `mask` is capacity - 1 as uint64.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from lanner.kernels.hashing.cpu import Word, bucket_of
from lanner.kernels.simd import prefetch

AHEAD = 16
ONE = np.uint64(1)


@nb.njit(nogil=True, inline="always")
def home(key: np.int64, mask: Word) -> Word:
    """Index in `slots` of the key word of the slot where the search for `key` begins."""
    x = np.uint64(key)
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return ((x ^ (x >> np.uint64(32))) & mask) << ONE


@nb.njit(nogil=True, inline="always")
def place(slots: np.ndarray, mask: Word, key: np.int64) -> Word:
    """Index of the key word of `key`'s slot, or of the empty slot where it belongs."""
    at = home(key, mask)
    while slots[at | ONE] != 0 and slots[at] != key:
        at = (at + np.uint64(2)) & (mask << ONE | ONE)
    return at


@nb.njit(nogil=True, cache=True)
def find(begin: int, end: int, slots: np.ndarray, mask: Word, keys: np.ndarray, rows: np.ndarray) -> None:
    """rows[i] = value of keys[i], minus one (so -1 where the key is absent), for begin <= i < end."""
    for i in range(begin, end):
        if i + AHEAD < end:
            prefetch(slots, home(keys[i + AHEAD], mask))
        rows[i] = slots[place(slots, mask, np.int64(keys[i])) | ONE] - 1


@nb.njit(nogil=True, cache=True)
def insert(
    slots: np.ndarray, mask: Word, keys: np.ndarray, rows: np.ndarray, begin: int, used: int, limit: int
) -> tuple[int, int]:
    """Store rows[i] + 1 under keys[i] from i = begin on, until the keys end or `limit` slots are in use.

    Returns (i, used) where it stopped.
    """
    count = keys.shape[0]
    for i in range(begin, count):
        if used >= limit:
            return i, used
        if i + AHEAD < count:
            prefetch(slots, home(keys[i + AHEAD], mask))
        at = place(slots, mask, np.int64(keys[i]))
        if slots[at | ONE] == 0:
            slots[at] = np.int64(keys[i])
            used += 1
        slots[at | ONE] = rows[i] + 1
    return count, used


@nb.njit(nogil=True, cache=True)
def assign(
    slots: np.ndarray, mask: Word, keys: np.ndarray, rows: np.ndarray, begin: int, used: int, limit: int
) -> tuple[int, int]:
    """rows[i] = row of keys[i]; a new key gets row `used`. Stops and returns like `insert`."""
    count = keys.shape[0]
    for i in range(begin, count):
        if used >= limit:
            return i, used
        if i + AHEAD < count:
            prefetch(slots, home(keys[i + AHEAD], mask))
        at = place(slots, mask, np.int64(keys[i]))
        if slots[at | ONE] == 0:
            slots[at] = np.int64(keys[i])
            used += 1
            slots[at | ONE] = used
        rows[i] = slots[at | ONE] - 1
    return count, used


@nb.njit(nogil=True, cache=True)
def count_keys(
    slots: np.ndarray, mask: Word, keys: np.ndarray, missing: np.ndarray, begin: int, used: int, limit: int
) -> tuple[int, int]:
    """Add one to the value of each key whose `missing` is false (`missing` may be empty: none is missing)."""
    count, masked = keys.shape[0], missing.shape[0] > 0
    for i in range(begin, count):
        if used >= limit:
            return i, used
        if i + AHEAD < count:
            prefetch(slots, home(keys[i + AHEAD], mask))
        if masked and missing[i]:
            continue
        at = place(slots, mask, np.int64(keys[i]))
        if slots[at | ONE] == 0:
            slots[at] = np.int64(keys[i])
            used += 1
        slots[at | ONE] += 1
    return count, used


@nb.njit(nogil=True, cache=True)
def add_counts(
    slots: np.ndarray, mask: Word, keys: np.ndarray, counts: np.ndarray, begin: int, used: int, limit: int
) -> tuple[int, int]:
    """Add counts[i] (positive) to the value of keys[i]; stops and returns like `insert`."""
    count = keys.shape[0]
    for i in range(begin, count):
        if used >= limit:
            return i, used
        if i + AHEAD < count:
            prefetch(slots, home(keys[i + AHEAD], mask))
        at = place(slots, mask, keys[i])
        if slots[at | ONE] == 0:
            slots[at] = keys[i]
            used += 1
        slots[at | ONE] += counts[i]
    return count, used


@nb.njit(nogil=True, cache=True)
def erase(slots: np.ndarray, mask: Word, keys: np.ndarray, rows: np.ndarray) -> int:
    """Take keys out; rows[i] = the row keys[i] had, or -1. Returns how many were there.

    The gap is closed by moving later slots of the run back, so no marker of a deleted slot is needed and searches
    never grow longer by deletion.
    """
    erased, wrap = 0, mask << ONE | ONE
    for i in range(keys.shape[0]):
        if i + AHEAD < keys.shape[0]:
            prefetch(slots, home(keys[i + AHEAD], mask))
        gap = place(slots, mask, np.int64(keys[i]))
        rows[i] = slots[gap | ONE] - 1
        if rows[i] < 0:
            continue
        erased += 1
        at = (gap + np.uint64(2)) & wrap
        while slots[at | ONE] != 0:
            if ((at - home(slots[at], mask)) & wrap) >= ((at - gap) & wrap):
                slots[gap], slots[gap | ONE] = slots[at], slots[at | ONE]
                gap = at
            at = (at + np.uint64(2)) & wrap
        slots[gap], slots[gap | ONE] = 0, 0
    return erased


@nb.njit(nogil=True, cache=True)
def rehash(old: np.ndarray, new: np.ndarray, mask: Word) -> None:
    """Copy every used slot of `old` into the empty, larger array `new`."""
    for s in range(0, old.shape[0], 2):
        if old[s + 1] != 0:
            at = home(old[s], mask)
            while new[at | ONE] != 0:
                at = (at + np.uint64(2)) & (mask << ONE | ONE)
            new[at], new[at | ONE] = old[s], old[s + 1]


@nb.njit(nogil=True, cache=True)
def items(slots: np.ndarray, keys: np.ndarray, values: np.ndarray) -> None:
    """All (key, value) pairs in slot order."""
    n = 0
    for s in range(0, slots.shape[0], 2):
        if slots[s + 1] != 0:
            keys[n], values[n] = slots[s], slots[s + 1]
            n += 1


@nb.njit(nogil=True, cache=True)
def vocabulary_ids(
    begin: int,
    end: int,
    slots: np.ndarray,
    mask: Word,
    keys: np.ndarray,
    missing: np.ndarray,
    first: np.int64,
    buckets: Word,
    out: np.ndarray,
) -> None:
    """out[i] = first + row of keys[i]; 0 where missing; where absent 0, or 1 + a bucket when `buckets` > 0."""
    masked = missing.shape[0] > 0
    for i in range(begin, end):
        if i + AHEAD < end:
            prefetch(slots, home(keys[i + AHEAD], mask))
        value = slots[place(slots, mask, np.int64(keys[i])) | ONE]
        if masked and missing[i]:
            out[i] = 0
        elif value != 0:
            out[i] = value - 1 + first
        elif buckets > 0:
            out[i] = ONE + bucket_of(keys[i], np.uint64(0), buckets)
        else:
            out[i] = 0


@nb.njit(nogil=True, cache=True)
def tally(
    rows: np.ndarray,
    known: int,
    amounts: np.ndarray,
    hashes: np.ndarray,
    counts: np.ndarray,
    checks: np.ndarray,
    first: np.ndarray,
) -> int:
    """Add amounts[i] to counts[rows[i]] and hold hashes[i] to checks[rows[i]].

    Rows from `known` on are new, numbered by first appearance: their hash is stored, and first[row - known] = i.
    Returns the first i whose hash differs from its row's, or -1.
    """
    fresh = known
    for i in range(rows.shape[0]):
        row = rows[i]
        if row == fresh:
            checks[row] = hashes[i]
            first[row - known] = i
            fresh += 1
        elif checks[row] != hashes[i]:
            return i
        counts[row] += amounts[i]
    return -1
