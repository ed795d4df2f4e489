"""Random fill on the CPU: a 64-bit mix of (stream + counter), as in SplitMix64 (Steele, Lea and Flood 2014)."""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(0xD6E8FEB86659FD93)


@nb.njit(nogil=True, cache=True, inline="always")
def mix(stream: Any, counter: Any) -> Any:
    """64 random bits, a function of two uint64."""
    x = stream + (counter + np.uint64(1)) * _GAMMA
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@nb.njit(nogil=True, cache=True)
def uniform(begin: int, end: int, out: Any, low: Any, width: Any, stream: Any, start: Any) -> None:
    """out[i] = low + width * u, u one of 2^24 steps in [0, 1)."""
    for i in range(begin, end):
        out[i] = _uniform(stream, start + np.uint64(i), low, width)


@nb.njit(nogil=True, cache=True)
def uniform_rows(begin: int, end: int, out: Any, keys: Any, low: Any, width: Any, stream: Any) -> None:
    """Like `uniform`, a row for each key."""
    dim = out.shape[1]
    for i in range(begin, end):
        own, start = _of_key(stream, keys[i], dim)
        for d in range(dim):
            out[i, d] = _uniform(own, start + np.uint64(d), low, width)


@nb.njit(nogil=True, cache=True)
def normal(begin: int, end: int, out: Any, mean: Any, std: Any, stream: Any, start: Any) -> None:
    """out[i] = mean + std * z, by Box and Muller from the two halves of one mixed word."""
    for i in range(begin, end):
        out[i] = _normal(stream, start + np.uint64(i), mean, std)


@nb.njit(nogil=True, cache=True)
def normal_rows(begin: int, end: int, out: Any, keys: Any, mean: Any, std: Any, stream: Any) -> None:
    """Like `normal`, a row for each key."""
    dim = out.shape[1]
    for i in range(begin, end):
        own, start = _of_key(stream, keys[i], dim)
        for d in range(dim):
            out[i, d] = _normal(own, start + np.uint64(d), mean, std)


@nb.njit(nogil=True, cache=True, inline="always")
def _uniform(stream: Any, counter: Any, low: Any, width: Any) -> Any:
    bits = mix(stream, counter) >> np.uint64(40)
    return low + width * (np.float32(np.int64(bits)) * np.float32(2.0**-24))


@nb.njit(nogil=True, cache=True, inline="always")
def _normal(stream: Any, counter: Any, mean: Any, std: Any) -> Any:
    bits = mix(stream, counter)
    radius = (np.float64(np.int64(bits >> np.uint64(32))) + 0.5) * 2.0**-32
    angle = np.float64(np.int64(bits & np.uint64(0xFFFFFFFF))) * (2.0**-32 * 2.0 * math.pi)
    return mean + std * np.float32(math.sqrt(-2.0 * math.log(radius)) * math.cos(angle))


@nb.njit(nogil=True, cache=True, inline="always")
def _of_key(stream: Any, key: Any, dim: int) -> tuple[Any, Any]:
    """The stream of a key and where its row starts: where key * dim would come round again, the stream is another."""
    word = np.uint64(key)
    return stream ^ ((word >> np.uint64(40)) * _FOLD), word * np.uint64(dim)
