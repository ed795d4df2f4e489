"""How often, and when last, the rows of a table were used; and which of them have been left alone for longest.

`usage` is int32 [capacity, 2], two numbers a row: USED, the step of its last use, and COUNT, how often it was used
(which stays at about 2^30 once there). A row that holds nothing has COUNT 0. Steps are 0 .. 2^31 - 1.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from lanner.kernels import parallel
from lanner.kernels.usage import cpu, reference
from lanner.kernels.usage.columns import COUNT, MOST, USED

__all__ = ["COUNT", "MOST", "USED", "coldest", "free", "stamp", "unused"]

Array = np.ndarray[Any, Any]
Backend = Literal["reference", "cpu"]

_GRAIN = 1 << 13
_SAMPLE = 1 << 14  # rows that tell about where the coldest end
_ANY = 2**63 - 1
_NO_TIMES = np.empty(0, np.int64)


def stamp(usage: Array, rows: Array, step: int, times: Array | None = None, backend: Backend = "cpu") -> int:
    """Note the use of `rows` in `step`; returns how many of them are -1, which stand for no row.

    `rows` int64 [n], repeated ones included; `times` int64 [n]: how many uses each entry stands for (None: 1).
    """
    if backend == "reference":
        return reference.stamp(usage, rows, step, times)
    missing = np.zeros(1, np.int64)
    given = _NO_TIMES if times is None else times
    parallel.run(cpu.stamp, len(rows), usage.reshape(-1), rows, np.int32(step), given, missing, grain=_GRAIN)
    return int(missing[0])


def coldest(
    usage: Array,
    keys: Array,
    top: int,
    step: int,
    wanted: int,
    by: Literal["used", "count"],
    backend: Backend = "cpu",
) -> Array:
    """The `wanted` rows of 1 .. top-1 used longest ago, or least often (of those, longest ago); int64, rising.

    Of equals those with the lower `keys` (int64 [capacity], distinct), so that it does not matter where the rows of
    keys lie. Rows that hold nothing or were used in `step` or later are left out, so fewer may come.
    """
    if backend == "reference":
        return reference.coldest(usage, keys, top, step, wanted, by)
    highest = _likely_highest(usage, top, step, wanted, by)
    rows, scores = _scored(usage, 1, top, 1, step, by, highest)
    if len(rows) < wanted and highest < _ANY:
        rows, scores = _scored(usage, 1, top, 1, step, by, _ANY)
    if len(rows) <= wanted or not wanted:
        return rows[:wanted]
    last = np.partition(scores, wanted - 1)[wanted - 1]
    below, equal = scores < last, np.flatnonzero(scores == last)
    missing = wanted - np.count_nonzero(below)
    below[equal[np.argpartition(keys[rows[equal]], missing - 1)[:missing]]] = True
    chosen: Array = rows[below]
    return chosen


def _likely_highest(usage: Array, top: int, step: int, wanted: int, by: str) -> int:
    """A score that a sample of the rows says is that of the last to go, or somewhat higher."""
    stride = top // _SAMPLE
    if stride < 4:
        return _ANY
    scores = np.sort(_scored(usage, 1, top, stride, step, by, _ANY)[1])
    place = int(wanted / stride * 1.2) + 64
    return int(scores[place]) if place < len(scores) else _ANY


def _scored(usage: Array, first: int, last: int, stride: int, step: int, by: str, highest: int) -> tuple[Array, Array]:
    rows, scores = np.empty(max(last - first, 0), np.int64), np.empty(max(last - first, 0), np.int64)
    count = cpu.scores(usage.reshape(-1), first, last, stride, np.int32(step), by == "count", highest, rows, scores)
    return rows[:count], scores[:count]


def unused(usage: Array, first: int, last: int, since: int, backend: Backend = "cpu") -> Array:
    """The rows of first .. last-1 whose last use was before step `since`; int64, rising."""
    if backend == "reference":
        return reference.unused(usage, first, last, since)
    rows = np.empty(max(last - first, 0), np.int64)
    return rows[: cpu.unused(usage.reshape(-1), first, last, np.int64(since), rows)]


def free(usage: Array, first: int, last: int, wanted: int, backend: Backend = "cpu") -> Array:
    """The first `wanted` rows of first .. last-1 that hold nothing, or all where there are fewer; int64, rising."""
    if backend == "reference":
        return reference.free(usage, first, last, wanted)
    rows = np.empty(wanted, np.int64)
    return rows[: cpu.free(usage.reshape(-1), first, last, rows)]
