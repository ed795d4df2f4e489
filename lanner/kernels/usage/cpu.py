"""The use of rows in Numba. `usage` comes flat: USED of row r at 2r, COUNT at 2r + 1."""

from __future__ import annotations

import numba as nb
import numpy as np

from lanner.kernels import atomic
from lanner.kernels.simd import get, prefetch, put
from lanner.kernels.usage.columns import MOST

_AHEAD = 16


@nb.njit(nogil=True, cache=True)
def stamp(
    begin: int, end: int, usage: np.ndarray, rows: np.ndarray, step: np.int32, times: np.ndarray, missing: np.ndarray
) -> None:
    """Note the use of rows[begin:end]; add to missing[0] the number of those below 0."""
    absent = 0
    for i in range(begin, end):
        if i + _AHEAD < end:
            prefetch(usage, 2 * get(rows, i + _AHEAD))
        row = get(rows, i)
        if row < 0:
            absent += 1
            continue
        amount = np.int64(1) if times.shape[0] == 0 else times[i]
        if get(usage, 2 * row) != step:
            put(usage, 2 * row, step)
        room = MOST - np.int64(get(usage, 2 * row + 1))
        if room > 0:
            atomic.add(usage, 2 * row + 1, np.int32(min(amount, room)))
    atomic.add(missing, 0, absent)


@nb.njit(nogil=True, cache=True)
def scores(
    usage: np.ndarray, first: int, last: int, stride: int, step: np.int32, by_count: bool, highest: int,
    rows: np.ndarray, out: np.ndarray,
) -> int:  # fmt: skip
    """Write the score of every `stride`-th row of first .. last-1, and its number, if that is at most `highest`.

    Scores are lower for rows that are to go earlier. Rows that hold nothing or were used in `step` or later have
    none. Returns how many.
    """
    count = 0
    for row in range(first, last, stride):
        used, times = np.int64(get(usage, 2 * row)), np.int64(get(usage, 2 * row + 1))
        score = (times << 32 | used) if by_count else used
        if times > 0 and used < step and score <= highest:
            rows[count] = row
            out[count] = score
            count += 1
    return count


@nb.njit(nogil=True, cache=True)
def unused(usage: np.ndarray, first: int, last: int, since: np.int64, rows: np.ndarray) -> int:
    """Write the rows of first .. last-1 not used since; returns how many."""
    count = 0
    for row in range(first, last):
        if get(usage, 2 * row + 1) > 0 and get(usage, 2 * row) < since:
            rows[count] = row
            count += 1
    return count


@nb.njit(nogil=True, cache=True)
def free(usage: np.ndarray, first: int, last: int, rows: np.ndarray) -> int:
    """Fill `rows` with the first rows of first .. last-1 that hold nothing; returns how many there were."""
    count, row = 0, first
    while count < rows.shape[0] and row < last:
        if get(usage, 2 * row + 1) == 0:
            rows[count] = row
            count += 1
        row += 1
    return count
