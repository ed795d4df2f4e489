"""Random fill on the CPU: a 64-bit mix of (stream + counter), as in SplitMix64 (Steele, Lea and Flood 2014)."""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


@nb.njit(nogil=True, cache=True, inline="always")
def _mix(stream: Any, counter: Any) -> Any:
    x = stream + (counter + np.uint64(1)) * _GAMMA
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@nb.njit(nogil=True, cache=True)
def uniform(begin: int, end: int, out: Any, low: Any, width: Any, stream: Any, start: Any) -> None:
    """out[i] = low + width * u, u one of 2^24 steps in [0, 1)."""
    for i in range(begin, end):
        bits = _mix(stream, start + np.uint64(i)) >> np.uint64(40)
        out[i] = low + width * (np.float32(np.int64(bits)) * np.float32(2.0**-24))


@nb.njit(nogil=True, cache=True)
def normal(begin: int, end: int, out: Any, mean: Any, std: Any, stream: Any, start: Any) -> None:
    """out[i] = mean + std * z, by Box and Muller from the two halves of one mixed word."""
    for i in range(begin, end):
        bits = _mix(stream, start + np.uint64(i))
        radius = (np.float64(np.int64(bits >> np.uint64(32))) + 0.5) * 2.0**-32
        angle = np.float64(np.int64(bits & np.uint64(0xFFFFFFFF))) * (2.0**-32 * 2.0 * math.pi)
        out[i] = mean + std * np.float32(math.sqrt(-2.0 * math.log(radius)) * math.cos(angle))
