"""Lookup of 32-bit keys in 8-byte slots: half the memory of `slots`, so that most vocabularies stay in cache.

`slots` is uint64 [capacity], capacity a power of two: the key in the upper half, row + 1 in the lower, 0 for an
empty slot; collisions go to the next slot. Built once, never changed. `mask` is capacity - 1 as uint64.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from lanner.kernels import memory
from lanner.kernels.hashing.cpu import Word, bucket_of
from lanner.kernels.simd import prefetch

AHEAD = 16
ONE = np.uint64(1)
HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)


@nb.njit(nogil=True, inline="always")
def home(key: Word, mask: Word) -> Word:
    """Slot where the search for `key` begins: the best mixed bits of the product are in its upper half."""
    return ((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> HALF) & mask


@nb.njit(nogil=True, cache=True)
def _fill(slots: np.ndarray, mask: Word, keys: np.ndarray) -> None:
    for i in range(keys.shape[0]):
        key = np.uint64(keys[i])
        at = home(key, mask)
        while slots[at] != 0:
            at = (at + ONE) & mask
        slots[at] = (key << HALF) | np.uint64(i + 1)


def build(keys: np.ndarray) -> tuple[np.ndarray, np.uint64]:
    """Slots and mask for distinct keys 0..2^32-1 (int64 [n]) with rows 0..n-1; at most half full."""
    capacity = 16
    while capacity < 2 * len(keys):
        capacity *= 2
    slots, mask = memory.zeros(capacity, np.uint64), np.uint64(capacity - 1)
    _fill(slots, mask, keys)
    return slots, mask


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
    """Like `values.vocabulary_ids`, for uint32 keys."""
    masked, before = missing.shape[0] > 0, np.uint64(first) - ONE
    for i in range(begin, end):
        if i + AHEAD < end:
            prefetch(slots, np.int64(home(keys[i + AHEAD], mask)))
        key = np.uint64(keys[i])
        at = home(key, mask)
        slot = slots[at]
        while slot != 0 and (slot >> HALF) != key:
            at = (at + ONE) & mask
            slot = slots[at]
        if masked and missing[i]:
            out[i] = 0
        elif slot != 0:
            out[i] = (slot & LOW) + before
        elif buckets > 0:
            out[i] = ONE + bucket_of(keys[i], np.uint64(0), buckets)
        else:
            out[i] = 0
