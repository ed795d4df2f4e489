"""Texts to integer keys in Numba, strictly: every character counts."""

from __future__ import annotations

import numba as nb
import numpy as np

_MINUS, _ZERO = 45, 48
_TENTH = np.uint64(2**63 // 10)


@nb.njit(nogil=True, inline="always")
def _hex_digit(char: int) -> int:
    """0..15, or -1."""
    if 48 <= char <= 57:
        return char - 48
    lower = char | 32
    return lower - 87 if 97 <= lower <= 102 else -1


@nb.njit(nogil=True, cache=True)
def hex_keys(
    begin: int, end: int, data: np.ndarray, offsets: np.ndarray, out: np.ndarray, missing: np.ndarray, bad: np.ndarray
) -> None:
    """Texts of 1 to 8 hexadecimal digits → uint32 `out`; empty ones set `missing`, others that do not fit `bad`.

    Texts whose `missing` is already set are not looked at.
    """
    for i in range(begin, end):
        start, stop = np.int64(offsets[i]), np.int64(offsets[i + 1])
        out[i] = 0
        if missing[i] or start == stop:
            missing[i] = True
            continue
        value, fits = np.uint32(0), stop - start <= 8
        for at in range(start, stop if fits else start):
            digit = _hex_digit(np.int64(data[at]))
            fits &= digit >= 0
            value = np.uint32((value << np.uint32(4)) | np.uint32(digit & 15))
        out[i], bad[i] = value, not fits


@nb.njit(nogil=True, cache=True)
def int_keys(
    begin: int, end: int, data: np.ndarray, offsets: np.ndarray, out: np.ndarray, missing: np.ndarray, bad: np.ndarray
) -> None:
    """Decimal integers of 64 bits with sign (`-` or none) → int64 `out`; otherwise like `hex_keys`."""
    for i in range(begin, end):
        start, stop = np.int64(offsets[i]), np.int64(offsets[i + 1])
        out[i] = 0
        if missing[i] or start == stop:
            missing[i] = True
            continue
        negative = data[start] == _MINUS
        start += np.int64(negative)
        value, fits = np.uint64(0), start < stop
        for at in range(start, stop):
            digit = np.int64(data[at]) - _ZERO
            fits &= (0 <= digit <= 9) and value <= _TENTH
            if not fits:
                break
            value = value * np.uint64(10) + np.uint64(digit)
        limit = np.uint64(2**63 - 1) + np.uint64(negative)
        bad[i] = not (fits and value <= limit)
        out[i] = -np.int64(value) if negative else np.int64(value)
