"""The use of rows in plain NumPy: what the fast kernels must equal."""

from __future__ import annotations

import numpy as np

from lanner.kernels.usage.columns import COUNT, MOST, USED


def stamp(usage: np.ndarray, rows: np.ndarray, step: int, times: np.ndarray | None) -> int:
    """See `lanner.kernels.usage.stamp`."""
    known = rows >= 0
    usage[rows[known], USED] = step
    added = np.bincount(rows[known], None if times is None else times[known], len(usage)).astype(np.int64)
    usage[:, COUNT] = np.where(usage[:, COUNT] < MOST, np.minimum(usage[:, COUNT] + added, MOST), usage[:, COUNT])
    return int((~known).sum())


def coldest(usage: np.ndarray, keys: np.ndarray, top: int, step: int, wanted: int, by: str) -> np.ndarray:
    """See `lanner.kernels.usage.coldest`."""
    used, count = usage[:top, USED], usage[:top, COUNT]
    eligible = np.flatnonzero((count > 0) & (used < step))
    eligible = eligible[eligible > 0]
    order = np.lexsort((keys[eligible], used[eligible], count[eligible] if by == "count" else used[eligible]))
    return np.sort(eligible[order[:wanted]])


def unused(usage: np.ndarray, first: int, last: int, since: int) -> np.ndarray:
    """See `lanner.kernels.usage.unused`."""
    part = usage[first:last]
    return first + np.flatnonzero((part[:, COUNT] > 0) & (part[:, USED] < since))


def free(usage: np.ndarray, first: int, last: int, wanted: int) -> np.ndarray:
    """See `lanner.kernels.usage.free`."""
    return first + np.flatnonzero(usage[first:last, COUNT] == 0)[:wanted]
