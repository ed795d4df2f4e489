"""The transforms in Numba: column by column, over as many rows at a time as stay in cache."""

from __future__ import annotations

import math

import numba as nb
import numpy as np

NONE, LOG1P, LOG_SHIFT3, LOG_MINUS_MIN, STANDARD, LOG1P_STANDARD, BUCKETIZE = range(7)
_LARGEST = float(np.finfo(np.float32).max)
_TILE = 256
"""Rows whose columns are taken one after the other."""
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


@nb.njit(nogil=True)
def _log1p_column(begin: int, end: int, k: int, dense: np.ndarray, fill: float, out: np.ndarray) -> None:
    """Column k of `transform` for LOG1P, with a single branch, which is rarely taken.

    Whether a cell is missing or negative cannot be foreseen, so that is selected and not branched on.
    """
    for row in range(begin, end):
        x = np.float64(dense[row, k])
        x = fill if x != x else x
        small = x if 0.0 < x < _LOGS.shape[0] else 0.0
        at = np.int64(small)
        out[row, k] = _LOGS[np.uint64(at)]
        if small != np.float64(at) or x >= _LOGS.shape[0] or x == -math.inf:
            out[row, k] = math.nan if math.isinf(x) else math.log1p(x)


@nb.njit(nogil=True)
def _column(
    begin: int,
    end: int,
    k: int,
    dense: np.ndarray,
    code: int,
    fill: float,
    a: float,
    b: float,
    boundaries: np.ndarray,
    out: np.ndarray,
) -> None:
    for row in range(begin, end):
        x = np.float64(dense[row, k])
        if math.isnan(x):
            x = fill
        if math.isnan(x):
            out[row, k] = 0.0
        elif math.isinf(x):
            out[row, k] = np.nan
        else:
            out[row, k] = min(max(_value(code, x, a, b, boundaries), -_LARGEST), _LARGEST)


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
    for low in range(begin, end, _TILE):
        high = min(low + _TILE, end)
        for k in range(codes.shape[0]):
            if codes[k] == LOG1P:
                _log1p_column(low, high, k, dense, fill[k], out)
            else:
                _column(low, high, k, dense, codes[k], fill[k], a[k], b[k], boundaries, out)


@nb.njit(nogil=True, cache=True)
def count_missing(dense: np.ndarray, counts: np.ndarray) -> None:
    """Add the number of NaNs of each column to `counts`."""
    for row in range(dense.shape[0]):
        for k in range(dense.shape[1]):
            counts[k] += dense[row, k] != dense[row, k]


@nb.njit(nogil=True, cache=True)
def narrow(wide: np.ndarray, out: np.ndarray) -> bool:
    """out = wide (flat) as float32; true when no value but NaNs' payloads was changed by it."""
    same = True
    for i in range(wide.shape[0]):
        out[i] = wide[i]
        same &= np.float64(out[i]) == wide[i] or wide[i] != wide[i]
    return same
