"""Counter-based random fill: value number i of a stream is a function of (stream, i) alone.

The row of key k in a table of `dim` columns has the numbers k * dim .. k * dim + dim - 1 of the table's stream, when k
is 0 .. 2^40 - 1; other keys have streams of their own.
"""

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


def uniform_rows(out: np.ndarray, keys: np.ndarray, low: float, high: float, stream: int) -> None:
    """Fill the rows of the contiguous float32 array `out` [n, dim] with the values of `keys`, any int64 [n]."""
    args = np.float32(low), np.float32(high - low), np.uint64(stream)
    parallel.run(cpu.uniform_rows, len(keys), out, keys, *args, grain=_grain(out))


def normal(out: np.ndarray, mean: float, std: float, stream: int, start: int = 0) -> None:
    """Fill the contiguous float32 array `out` with normal values: numbers start.. of `stream`."""
    flat = out.reshape(-1)
    args = np.float32(mean), np.float32(std), np.uint64(stream), np.uint64(start)
    parallel.run(cpu.normal, flat.size, flat, *args, grain=_GRAIN)


def normal_rows(out: np.ndarray, keys: np.ndarray, mean: float, std: float, stream: int) -> None:
    """Fill the rows of the contiguous float32 array `out` [n, dim] with the values of `keys`, any int64 [n]."""
    args = np.float32(mean), np.float32(std), np.uint64(stream)
    parallel.run(cpu.normal_rows, len(keys), out, keys, *args, grain=_grain(out))


def _grain(out: np.ndarray) -> int:
    """Rows worth a thread of its own."""
    return max(_GRAIN // max(int(out.shape[1]), 1), 1)
