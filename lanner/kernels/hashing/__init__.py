"""Hashing: the same value in every process, on every machine and in every release.

`mix64` and `bucket` hash 64-bit keys, `xxh64` hashes texts. The golden file in the tests holds them in place.
"""

from __future__ import annotations

import numpy as np

from lanner.errors import ConfigError
from lanner.kernels import parallel
from lanner.kernels.hashing import cpu

_GRAIN = 1 << 15


def mix64(keys: np.ndarray) -> np.ndarray:
    """A bijective scramble of 64-bit keys: keys [n] (int64 or uint32) → uint64 [n]."""
    out = np.empty(len(keys), np.uint64)
    parallel.run(cpu.mix_all, len(keys), keys, out, grain=_GRAIN)
    return out


def scatter(keys: np.ndarray, seed: int) -> np.ndarray:
    """64-bit hashes of 64-bit keys, one to one for each seed: keys [n] (int64 or uint32) → uint64 [n].

    hash = mix64(key + 0x9E3779B97F4A7C15 * (seed + 1)), so that bucket = hash modulo size. Raises ConfigError when
    seed < 0.
    """
    if seed < 0:
        raise ConfigError(f"hash: seed {seed}, expected at least 0")
    offset = np.uint64(0x9E3779B97F4A7C15 * (seed + 1) % 2**64)
    return mix64((keys.astype(np.int64).view(np.uint64) + offset).view(np.int64))


def bucket(keys: np.ndarray, seed: int, size: int) -> np.ndarray:
    """Buckets of 64-bit keys: keys [n] (int64 or uint32) → int64 [n] in 0..size-1.

    bucket = mix64(key + 0x9E3779B97F4A7C15 * (seed + 1)) modulo size. Raises ConfigError when size < 1 or seed < 0.
    """
    if size < 1 or seed < 0:
        raise ConfigError(f"hash buckets: size {size} and seed {seed}, expected size >= 1 and seed >= 0")
    out = np.empty(len(keys), np.int64)
    parallel.run(cpu.bucket_all, len(keys), keys, np.uint64(seed), np.uint64(size), out, grain=_GRAIN)
    return out


def xxh64(data: np.ndarray, offsets: np.ndarray, seed: int = 0) -> np.ndarray:
    """XXH64 of n byte strings that lie end to end in `data`, as in an Arrow string array.

    data uint8; offsets int32 or int64 [n + 1], text i is data[offsets[i]:offsets[i + 1]] → uint64 [n].
    """
    count = len(offsets) - 1
    out = np.empty(count, np.uint64)
    parallel.run(cpu.xxh64_all, count, data, offsets, np.uint64(seed), out, grain=_GRAIN // 4)
    return out
