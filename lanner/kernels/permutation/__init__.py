"""A pseudo-random order of 0..total-1 that is computed place by place, so that it needs no memory.

A Feistel network (Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", 1988)
over pairs (left, right) of Z_a x Z_b with a*b just above `total`, as in Black and Rogaway, "Ciphers with arbitrary
finite domains" (2002): results outside the range are encrypted again until they fall inside ("cycle walking").
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lanner.kernels.permutation import cpu

ROUNDS = 12
_MASK = (1 << 64) - 1


def permute(begin: int, end: int, total: int, seed: int = 0, epoch: int = 0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Places `begin`..`end`-1 of the order that `seed` and `epoch` give to 0..total-1, as int64.

    All places together hold every number once. The order is the same in every process, release and on every
    machine. Raises ValueError unless 0 <= begin <= end <= total.
    """
    if not 0 <= begin <= end <= total:
        raise ValueError(f"places {begin}..{end} lie outside an order of {total}")
    out = np.empty(end - begin, dtype=np.int64)
    left, right = sides(total)
    cpu.permute(begin, total, left, right, round_keys(seed, epoch), out)
    return out


def sides(total: int) -> tuple[int, int]:
    """The moduli (a, b) of the network: a*b >= total, both about its square root."""
    left = math.isqrt(max(total - 1, 0)) + 1
    return left, max(-(-total // left), 1)


def round_keys(seed: int, epoch: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """ROUNDS keys from splitmix64 (Steele, Lea and Flood, 2014), started at a mix of `seed` and `epoch`."""
    state = _mix(_mix(seed & _MASK) + (epoch & _MASK))
    keys = [_mix(state + number * 0x9E3779B97F4A7C15) for number in range(1, ROUNDS + 1)]
    return np.array(keys, dtype=np.uint64)


def _mix(value: int) -> int:
    value &= _MASK
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)
