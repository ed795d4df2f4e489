"""Distinct ids of the segments of a batch, and for each id its place among them."""

from __future__ import annotations

from typing import Any, overload

import numpy as np
from torch import Tensor

from lanner.errors import DataError
from lanner.kernels import parallel
from lanner.kernels.memory import scratch
from lanner.kernels.unique import cpu, gpu

Array = np.ndarray[Any, Any]

_GRAIN = 1 << 12  # ids worth a thread of their own


@overload
def unique(values: Array, bounds: Array, segments: Array | None = None) -> tuple[Array, Array, Array]: ...


@overload
def unique(values: Tensor, bounds: Array, segments: Array | None = None) -> tuple[Tensor, Tensor, Tensor]: ...


def unique(values: Array | Tensor, bounds: Array, segments: Array | None = None) -> tuple[Any, Any, Any]:
    """The distinct ids of each segment in order of first appearance, and where each id stands among them.

    `values` int64 or int32 [n], any id legal. Piece p of it, values[bounds[p]:bounds[p + 1]] (bounds int64 [P + 1],
    rising from 0 to n), belongs to segment segments[p] (int64 [P], from 0 on; by default p, so that every piece is a
    segment). The features that share a table are pieces of one segment, whether they are adjacent or not.

    Returns `distinct` int64, segment after segment; `inverse` int64 [n], the place of each id among the distinct ids
    of its segment; `counts` int64 [S], the number of distinct ids of each segment. They do not depend on the number
    of threads. A tensor of values gives tensors on its device. Raises DataError when bounds or segments do not
    describe `values`.
    """
    bounds = np.ascontiguousarray(bounds, np.int64)
    segments = np.arange(len(bounds) - 1) if segments is None else np.ascontiguousarray(segments, np.int64)
    _check(values, bounds, segments)
    if isinstance(values, Tensor):
        return gpu.unique(values, bounds, segments)
    values = np.ascontiguousarray(values)
    sizes = np.bincount(segments, weights=np.diff(bounds)).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    order = np.argsort(segments, kind="stable")
    firsts = np.searchsorted(segments[order], np.arange(len(sizes) + 1))
    distinct, inverse = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    counts = np.empty(len(sizes), np.int64)
    slots_needed = cpu.words_for(int(sizes.max(initial=0)))

    def work(begin: int, end: int) -> None:
        slots, tag = scratch("unique slots", slots_needed, np.int64), scratch("unique tag", 1, np.int64)
        cpu.unique(begin, end, values, bounds, order, firsts, starts, slots, tag, distinct, inverse, counts)

    if len(values) < 2 * _GRAIN:
        work(0, len(sizes))
    else:
        parallel.run(work, len(sizes), pieces_per_thread=len(sizes))
    return cpu.closed_up(distinct, starts, counts), inverse, counts


def _check(values: Array | Tensor, bounds: Array, segments: Array) -> None:
    if values.ndim != 1 or str(values.dtype).removeprefix("torch.") not in ("int64", "int32"):
        raise DataError(f"unique: values are {values.dtype} [{values.ndim}-D], expected int64 or int32, 1-D")
    if len(bounds) != len(segments) + 1:
        raise DataError(f"unique: {len(bounds)} bounds with {len(segments)} segments, expected one bound more")
    if bounds[0] != 0 or bounds[-1] != len(values) or (np.diff(bounds) < 0).any():
        raise DataError(f"unique: bounds {bounds.tolist()[:8]} do not rise from 0 to {len(values)}, the number of ids")
    if len(segments) and segments.min() < 0:
        raise DataError(f"unique: segment {int(segments.min())} is negative")
