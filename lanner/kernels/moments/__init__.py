"""Sums and sums of squares in twice the working precision, so that the order of adding does not show."""

from __future__ import annotations

import numpy as np

from lanner.kernels.moments import cpu


def add_moments(values: np.ndarray, sums: np.ndarray) -> int:
    """Add the finite entries of `values` (float64 [n]) to `sums`; returns how many there were.

    `sums` (float64 [4]) holds Σx as sums[0] + sums[1] and Σx² as sums[2] + sums[3], each pair an unevaluated sum
    with about 106 bits (Dekker 1971, "A floating-point technique for extending the available precision").
    """
    return int(cpu.add_moments(np.ascontiguousarray(values, np.float64), sums))
