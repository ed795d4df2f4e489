"""Hashes in Numba: the 64-bit finaliser, buckets, and XXH64 over many texts."""

from __future__ import annotations

from typing import Any, TypeAlias

import numba as nb
import numpy as np

Word: TypeAlias = Any
"""An np.uint64 inside compiled code (signed arithmetic would turn to float64 beside it)."""

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)
STEP = np.uint64(0x9E3779B97F4A7C15)
ONE = np.uint64(1)


@nb.njit(nogil=True, inline="always")
def mixed(x: Word) -> Word:
    """Stafford's variant 13 of MurmurHash3's finaliser (the one of SplitMix64); `x` is uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@nb.njit(nogil=True, inline="always")
def bucket_of(key: Word, seed: Word, size: Word) -> Word:
    """Bucket 0..size-1 of one key; `seed` and `size` are uint64."""
    return mixed(np.uint64(key) + STEP * (seed + ONE)) % size


@nb.njit(nogil=True, cache=True)
def mix_all(begin: int, end: int, keys: np.ndarray, out: np.ndarray) -> None:
    for i in range(begin, end):
        out[i] = mixed(np.uint64(keys[i]))


@nb.njit(nogil=True, cache=True)
def bucket_all(begin: int, end: int, keys: np.ndarray, seed: Word, size: Word, out: np.ndarray) -> None:
    for i in range(begin, end):
        out[i] = bucket_of(keys[i], seed, size)


@nb.njit(nogil=True, inline="always")
def _rotated(x: Word, bits: int) -> Word:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@nb.njit(nogil=True, inline="always")
def _round(lane: Word, word: Word) -> Word:
    return _rotated(lane + word * P2, 31) * P1


@nb.njit(nogil=True, inline="always")
def _word32(data: np.ndarray, at: Word) -> Word:
    word = np.uint64(data[at])
    for k in range(1, 4):
        word |= np.uint64(data[at + np.uint64(k)]) << np.uint64(8 * k)
    return word


@nb.njit(nogil=True, inline="always")
def _word64(data: np.ndarray, at: Word) -> Word:
    word = np.uint64(data[at])
    for k in range(1, 8):
        word |= np.uint64(data[at + np.uint64(k)]) << np.uint64(8 * k)
    return word


@nb.njit(nogil=True)
def _stripes(data: np.ndarray, at: Word, stop: Word, seed: Word) -> Word:
    """The four lanes over all whole 32-byte stripes of data[at:stop], merged."""
    a, b, c, d = seed + P1 + P2, seed + P2, seed, seed - P1
    while at + np.uint64(32) <= stop:
        a = _round(a, _word64(data, at))
        b = _round(b, _word64(data, at + np.uint64(8)))
        c = _round(c, _word64(data, at + np.uint64(16)))
        d = _round(d, _word64(data, at + np.uint64(24)))
        at += np.uint64(32)
    value = _rotated(a, 1) + _rotated(b, 7) + _rotated(c, 12) + _rotated(d, 18)
    for lane in (a, b, c, d):
        value = (value ^ _round(np.uint64(0), lane)) * P1 + P4
    return value


@nb.njit(nogil=True)
def xxh64(data: np.ndarray, at: Word, stop: Word, seed: Word) -> Word:
    """XXH64 of the bytes data[at:stop]; all of `at`, `stop`, `seed` are uint64."""
    length = stop - at
    if length >= np.uint64(32):
        value = _stripes(data, at, stop, seed)
        at += length & ~np.uint64(31)
    else:
        value = seed + P5
    value += length
    while at + np.uint64(8) <= stop:
        value = _rotated(value ^ _round(np.uint64(0), _word64(data, at)), 27) * P1 + P4
        at += np.uint64(8)
    if at + np.uint64(4) <= stop:
        value = _rotated(value ^ (_word32(data, at) * P1), 23) * P2 + P3
        at += np.uint64(4)
    while at < stop:
        value = _rotated(value ^ (np.uint64(data[at]) * P5), 11) * P1
        at += ONE
    value = (value ^ (value >> np.uint64(33))) * P2
    value = (value ^ (value >> np.uint64(29))) * P3
    return value ^ (value >> np.uint64(32))


@nb.njit(nogil=True, cache=True)
def xxh64_all(begin: int, end: int, data: np.ndarray, offsets: np.ndarray, seed: Word, out: np.ndarray) -> None:
    """out[i] = XXH64 of data[offsets[i]:offsets[i + 1]] for begin <= i < end."""
    for i in range(begin, end):
        out[i] = xxh64(data, np.uint64(offsets[i]), np.uint64(offsets[i + 1]), seed)
