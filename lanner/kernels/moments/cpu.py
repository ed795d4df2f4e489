"""Double-double accumulation in Numba (no fast math: the error terms are the point)."""

from __future__ import annotations

import numba as nb
import numpy as np

_SPLIT = 134217729.0  # 2^27 + 1


@nb.njit(nogil=True, inline="always")
def _two_sum(a: float, b: float) -> tuple[float, float]:
    """a + b and its rounding error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@nb.njit(nogil=True, inline="always")
def _square(a: float) -> tuple[float, float]:
    """a * a and its rounding error (Veltkamp and Dekker); exact for |a| < 2^480."""
    big = _SPLIT * a
    high = big - (big - a)
    low = a - high
    product = a * a
    return product, ((high * high - product) + 2.0 * high * low) + low * low


@nb.njit(nogil=True, inline="always")
def _added(high: float, low: float, x: float, error: float) -> tuple[float, float]:
    total, rest = _two_sum(high, x)
    high, low = _two_sum(total, rest + (low + error))
    return high, low


@nb.njit(nogil=True, cache=True)
def add_moments(values: np.ndarray, sums: np.ndarray) -> int:
    count, s, s_low, q, q_low = 0, sums[0], sums[1], sums[2], sums[3]
    for x in values:
        if np.isfinite(x):
            count += 1
            s, s_low = _added(s, s_low, x, 0.0)
            product, error = _square(x)
            q, q_low = _added(q, q_low, product, error)
    sums[0], sums[1], sums[2], sums[3] = s, s_low, q, q_low
    return count
