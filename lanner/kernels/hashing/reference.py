"""The hashes in plain Python, one value at a time: what the kernels are held to."""

from __future__ import annotations

_MASK = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def mix64(key: int) -> int:
    """Stafford's variant 13 of MurmurHash3's finaliser: int (taken modulo 2^64) → 0..2^64-1."""
    x = key & _MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


def bucket(key: int, seed: int, size: int) -> int:
    """mix64(key + 0x9E3779B97F4A7C15 * (seed + 1)) modulo `size`."""
    return mix64(key + 0x9E3779B97F4A7C15 * (seed + 1)) % size


def _rotated(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotated(lane + word * _P2 & _MASK, 31) * _P1 & _MASK


def xxh64(text: bytes, seed: int = 0) -> int:
    """XXH64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md) of `text`."""
    tail = text
    if len(text) >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while len(tail) >= 32:
            words = [int.from_bytes(tail[8 * k : 8 * k + 8], "little") for k in range(4)]
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            tail = tail[32:]
        value = sum(_rotated(lane & _MASK, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            value = ((value ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        value = seed + _P5 & _MASK
    value = _absorbed(value + len(text) & _MASK, tail)
    value = (value ^ (value >> 33)) * _P2 & _MASK
    value = (value ^ (value >> 29)) * _P3 & _MASK
    return value ^ (value >> 32)


def _absorbed(value: int, tail: bytes) -> int:
    while len(tail) >= 8:
        value = (_rotated(value ^ _round(0, int.from_bytes(tail[:8], "little")), 27) * _P1 + _P4) & _MASK
        tail = tail[8:]
    if len(tail) >= 4:
        word = int.from_bytes(tail[:4], "little") * _P1 & _MASK
        value = (_rotated(value ^ word, 23) * _P2 + _P3) & _MASK
        tail = tail[4:]
    for byte in tail:
        value = _rotated(value ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    return value
