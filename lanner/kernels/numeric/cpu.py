"""The transforms in Numba: one pass over the block, row by row."""

from __future__ import annotations

import math

import numba as nb
import numpy as np

NONE, LOG1P, LOG_SHIFT3, LOG_MINUS_MIN, STANDARD, LOG1P_STANDARD, BUCKETIZE = range(7)
_LARGEST = float(np.finfo(np.float32).max)
_LOGS = np.array([math.log1p(k) for k in range(1024)])
"""Most numbers in logs are small counts; looking their logarithm up is faster than computing it."""


@nb.njit(nogil=True)
def _bucket(x: float, boundaries: np.ndarray, low: int, high: int) -> float:
    """How many of boundaries[low:high] are <= x."""
    start = low
    while low < high:
        middle = (low + high) // 2
        if boundaries[middle] <= x:
            low = middle + 1
        else:
            high = middle
    return float(low - start)


@nb.njit(nogil=True)
def _log1p(x: float) -> float:
    """ln(1 + max(x, 0))."""
    if not x > 0.0:
        return 0.0
    if x < _LOGS.shape[0] and x == int(x):
        known: float = _LOGS[int(x)]
        return known
    return math.log1p(x)


@nb.njit(nogil=True)
def _value(code: int, x: float, a: float, b: float, boundaries: np.ndarray) -> float:
    if code == NONE:
        return x
    if code == LOG1P:
        return float(_log1p(x))
    if code == LOG_SHIFT3:
        return math.log(x + 3.0) if x > -3.0 else 0.0
    if code == LOG_MINUS_MIN:
        return math.log(max(x - a + 2.0, 1.0))
    if code == STANDARD:
        return (x - a) / b
    if code == LOG1P_STANDARD:
        return float((_log1p(x) - a) / b)
    below: float = _bucket(x, boundaries, int(a), int(b))
    return below


@nb.njit(nogil=True, cache=True)
def transform(
    begin: int,
    end: int,
    dense: np.ndarray,
    codes: np.ndarray,
    fill: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    boundaries: np.ndarray,
    out: np.ndarray,
) -> None:
    for row in range(begin, end):
        for k in range(codes.shape[0]):
            x = dense[row, k]
            if math.isnan(x):
                x = fill[k]
            if math.isnan(x):
                out[row, k] = 0.0
            elif math.isinf(x):
                out[row, k] = np.nan
            else:
                out[row, k] = min(max(_value(codes[k], x, a[k], b[k], boundaries), -_LARGEST), _LARGEST)
