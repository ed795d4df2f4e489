"""What the benchmarks share: the copy bandwidth, ids to look up, and rounds in which the sides take turns."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from lanner.kernels import memory, parallel

_EXPONENT = 1.05  # of the power law, as is usual for click logs


def copy_bandwidth() -> float:
    """Bytes read and written a second by the kernel threads copying 256 MB, best of 5."""
    source, target = memory.zeros(1 << 25, np.float32), memory.zeros(1 << 25, np.float32)
    source.fill(1)

    def piece(begin: int, end: int) -> None:
        target[begin:end] = source[begin:end]

    times = []
    for _ in range(5):
        start = time.perf_counter()
        parallel.run(piece, source.size)
        times.append(time.perf_counter() - start)
    return 2 * source.nbytes / min(times)


def draw(kind: str, rows: int, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Ids, int64 of `shape`, below `rows`: "uniform", or "power-law" with the frequent ids anywhere in the table."""
    random = np.random.default_rng(seed)
    if kind == "uniform":
        return random.integers(0, rows, shape)
    heights = np.cumsum(np.arange(1, rows + 1) ** -_EXPONENT)
    ranks = np.searchsorted(heights, random.random(shape) * heights[-1])
    return random.permutation(rows)[np.minimum(ranks, rows - 1)]


def rounds_of(
    calls: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Milliseconds of every call in every round, taken in turn; the first call of each is not counted."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            start = clock()
            call()
            if turn:
                times[name].append((clock() - start) * 1e3)
    return times
