"""Counter-based random fill: value number i of a stream is a function of (stream, i) alone."""

from __future__ import annotations

import numpy as np

from lanner.kernels import parallel
from lanner.kernels.random import cpu

_GRAIN = 1 << 16


def uniform(out: np.ndarray, low: float, high: float, stream: int, start: int = 0) -> None:
    """Fill the contiguous float32 array `out` with uniform values in [low, high): numbers start.. of `stream`."""
    flat = out.reshape(-1)
    args = np.float32(low), np.float32(high - low), np.uint64(stream), np.uint64(start)
    parallel.run(cpu.uniform, flat.size, flat, *args, grain=_GRAIN)


def normal(out: np.ndarray, mean: float, std: float, stream: int, start: int = 0) -> None:
    """Fill the contiguous float32 array `out` with normal values: numbers start.. of `stream`."""
    flat = out.reshape(-1)
    args = np.float32(mean), np.float32(std), np.uint64(stream), np.uint64(start)
    parallel.run(cpu.normal, flat.size, flat, *args, grain=_GRAIN)
