"""The loops in Numba: about 1.5 microseconds a row of 13 + 26 columns for values and text."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from lanner.kernels.hashing.cpu import STEP, mixed

MISSING = -(2**62)
_LARGEST = 2**31 - 1.0
_UNIT = 2.0**-53
_DROP = np.uint64(11)
# Streams of random numbers: one for every use, far enough apart for any number of columns.
_SPARSE, _SPARSE_GAP, _DENSE, _DENSE_GAP, _LABEL, _EFFECT, _LEFT, _RIGHT = (k << 20 for k in range(1, 9))


@numba.njit(inline="always")
def _bits(seed: Any, stream: Any, number: Any) -> Any:
    """64 random bits that depend on the three numbers alone."""
    return mixed(mixed(np.uint64(seed) + STEP * np.uint64(stream)) + STEP * np.uint64(number))


@numba.njit(inline="always")
def _uniform(seed: Any, stream: Any, number: Any) -> Any:
    """Uniform in [0, 1)."""
    return np.float64(_bits(seed, stream, number) >> _DROP) * _UNIT


@numba.njit(inline="always")
def _normal(seed: Any, stream: Any, number: Any) -> Any:
    """Nearly normal, mean 0 and variance 1: the sum of four 16-bit uniforms."""
    bits = _bits(seed, stream, number)
    low = np.uint64(0xFFFF)
    total = (bits & low) + ((bits >> np.uint64(16)) & low) + ((bits >> np.uint64(32)) & low) + (bits >> np.uint64(48))
    return (np.float64(total) / 65536.0 - 2.0) * math.sqrt(3.0)


@numba.njit(inline="always")
def _shown(world: Any, column: Any, rank: Any) -> Any:
    """How far a value's effect counts: near 1 for frequent values, falling to 0 for those too rare to learn."""
    return 1.0 / (1.0 + world.fade * world.log_size[column] * (rank + 1.5))


@numba.njit(inline="always")
def _number(world: Any, column: Any, row: Any) -> Any:
    """A log-logistic integer and its effect; a missing cell has the effect of 0, as which most transforms take it."""
    value = 0.0
    missing = _uniform(world.seed, _DENSE_GAP + column, row) < world.dense_missing[column]
    if not missing:
        level = _uniform(world.seed, _DENSE + column, row) + _UNIT
        height = math.exp(world.center[column]) * (level / (1.0 - level + _UNIT)) ** world.spread[column]
        value = math.floor(min(height, _LARGEST)) - world.shift[column]
    # A logistic variable's standard deviation is pi / sqrt(3) times its spread.
    place = (math.log1p(max(value, 0.0)) - world.center[column]) / (1.8138 * world.spread[column])
    place = min(max(place, -2.0), 2.0)
    effect = world.linear[column] * place + world.square[column] * (place * place - 1.0)
    return MISSING if missing else np.int64(value), effect


@numba.njit(inline="always")
def _rank(world: Any, column: Any, row: Any) -> Any:
    """Rank of a value, 0 the most frequent: P(rank) = ln((rank + 2) / (rank + 1)) / ln(size + 1), about 1 / rank."""
    if _uniform(world.seed, _SPARSE_GAP + column, row) < world.sparse_missing[column]:
        return MISSING
    return np.int64(math.exp(_uniform(world.seed, _SPARSE + column, row) * world.log_size[column])) - 1


@numba.njit(inline="always")
def _interaction(world: Any, pair: Any, first: Any, second: Any) -> Any:
    """Inner product of two hidden vectors of length 2 that the values of a pair of columns have."""
    left, right = world.pairs[pair, 0], world.pairs[pair, 1]
    total = 0.0
    for factor in range(2):
        stream = pair * 2 + factor
        total += _normal(world.seed, _LEFT + stream, first) * _normal(world.seed, _RIGHT + stream, second)
    return world.pair_strength[pair] * total * _shown(world, left, first) * _shown(world, right, second)


@numba.njit(nogil=True, cache=True)
def make_rows(begin: Any, end: Any, world: Any, first: Any, dense: Any, ranks: Any, logits: Any, labels: Any) -> None:
    """Fill rows begin..end-1 of the outputs with the logs' rows first + begin and on."""
    for index in range(begin, end):
        row, total = first + index, 0.0
        for column in range(dense.shape[1]):
            dense[index, column], effect = _number(world, column, row)
            total += effect
        for column in range(ranks.shape[1]):
            rank = _rank(world, column, row)
            ranks[index, column] = rank
            if rank != MISSING and world.strength[column] != 0.0:
                effect = _normal(world.seed, _EFFECT + column, rank)
                total += world.strength[column] * effect * _shown(world, column, rank)
        for pair in range(world.pairs.shape[0]):
            one, other = ranks[index, world.pairs[pair, 0]], ranks[index, world.pairs[pair, 1]]
            if one != MISSING and other != MISSING:
                total += _interaction(world, pair, one, other)
        logits[index] = world.bias + world.scale * total
        labels[index] = _uniform(world.seed, _LABEL, row) < 1.0 / (1.0 + math.exp(-logits[index]))


@numba.njit(inline="always")
def _write_integer(value: Any, out: Any, at: Any) -> Any:
    if value < 0:
        out[at] = 45  # minus
        at, value = at + 1, -value
    digits, rest = 1, value // 10
    while rest:
        digits, rest = digits + 1, rest // 10
    for place in range(at + digits - 1, at - 1, -1):
        out[place] = 48 + value % 10
        value //= 10
    return at + digits


@numba.njit(inline="always")
def _write_hash(rank: Any, salt: Any, out: Any, at: Any) -> Any:
    """8 hex digits of MurmurHash3's 32-bit finaliser (Appleby, 2011), a bijection: no two ranks share a hash."""
    word = np.uint32(np.uint32(rank) + salt)
    word = np.uint32((word ^ (word >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    word = np.uint32((word ^ (word >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    word = np.uint32(word ^ (word >> np.uint32(16)))
    for place in range(8):
        digit = (word >> np.uint32(28 - 4 * place)) & np.uint32(15)
        out[at + place] = digit + (48 if digit < 10 else 87)
    return at + 8


@numba.njit(nogil=True, cache=True)
def write_text(begin: Any, end: Any, labels: Any, dense: Any, ranks: Any, salt: Any, out: Any) -> Any:
    """Write rows begin..end-1 as lines; returns the number of bytes."""
    at = 0
    for row in range(begin, end):
        out[at] = 48 + labels[row]
        at += 1
        for column in range(dense.shape[1]):
            out[at] = 9
            at += 1
            if dense[row, column] != MISSING:
                at = _write_integer(dense[row, column], out, at)
        for column in range(ranks.shape[1]):
            out[at] = 9
            at += 1
            if ranks[row, column] != MISSING:
                at = _write_hash(ranks[row, column], salt[column], out, at)
        out[at] = 10
        at += 1
    return at
