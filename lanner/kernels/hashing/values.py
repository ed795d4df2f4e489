"""What preparing data does with tables of slots: counting values, and turning them into ids (see `slots`)."""

from __future__ import annotations

import numba as nb
import numpy as np

from lanner.kernels.hashing.cpu import Word, bucket_of
from lanner.kernels.hashing.slots import AHEAD, ONE, fetch, fields, place
from lanner.kernels.simd import get, put


@nb.njit(nogil=True, cache=True)
def count_keys(
    slots: np.ndarray, plan: np.ndarray, keys: np.ndarray, missing: np.ndarray, begin: int, used: int, limit: int
) -> tuple[int, int]:
    """Add one to the value of each key whose `missing` is false (`missing` may be empty: none is missing)."""
    count, held, masked = keys.shape[0], fields(plan), missing.shape[0] > 0
    for i in range(begin, count):
        if used >= limit:
            return i, used
        if i + AHEAD < count:
            fetch(slots, held, np.int64(keys[i + AHEAD]))
        if masked and missing[i]:
            continue
        at = place(slots, held, np.int64(keys[i]))
        if get(slots, at | ONE) == 0:
            put(slots, at, np.int64(keys[i]))
            used += 1
        put(slots, at | ONE, get(slots, at | ONE) + 1)
    return count, used


@nb.njit(nogil=True, cache=True)
def add_counts(
    slots: np.ndarray, plan: np.ndarray, keys: np.ndarray, counts: np.ndarray, begin: int, used: int, limit: int
) -> tuple[int, int]:
    """Add counts[i] (positive) to the value of keys[i]; stops and returns like `slots.insert`."""
    count, held = keys.shape[0], fields(plan)
    for i in range(begin, count):
        if used >= limit:
            return i, used
        if i + AHEAD < count:
            fetch(slots, held, np.int64(keys[i + AHEAD]))
        at = place(slots, held, keys[i])
        if get(slots, at | ONE) == 0:
            put(slots, at, keys[i])
            used += 1
        put(slots, at | ONE, get(slots, at | ONE) + counts[i])
    return count, used


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


@nb.njit(nogil=True, cache=True)
def vocabulary_ids(
    begin: int,
    end: int,
    slots: np.ndarray,
    plan: np.ndarray,
    keys: np.ndarray,
    missing: np.ndarray,
    first: np.int64,
    buckets: Word,
    out: np.ndarray,
) -> None:
    """out[i] = first + row of keys[i]; 0 where missing; where absent 0, or 1 + a bucket when `buckets` > 0."""
    held, masked = fields(plan), missing.shape[0] > 0
    for i in range(begin, end):
        if i + AHEAD < end:
            fetch(slots, held, np.int64(keys[i + AHEAD]))
        value = get(slots, place(slots, held, np.int64(keys[i])) | ONE)
        if masked and missing[i]:
            out[i] = 0
        elif value != 0:
            out[i] = value - 1 + first
        elif buckets > 0:
            out[i] = ONE + bucket_of(keys[i], np.uint64(0), buckets)
        else:
            out[i] = 0
