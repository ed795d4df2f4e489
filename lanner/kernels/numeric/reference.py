"""The transforms of one column in plain NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_LARGEST = float(np.finfo(np.float32).max)


def transform(
    name: str, fill: float, column: np.ndarray, a: float = 0.0, b: float = 1.0, boundaries: Sequence[float] = ()
) -> np.ndarray:
    """float64 [n] with NaN for missing → float32 [n]; `a` and `b` as in `Rules`."""
    x = np.where(np.isnan(column), fill, column)
    with np.errstate(over="ignore"):
        values = _values(name, x, a, b, boundaries)
    clipped = np.clip(values, -_LARGEST, _LARGEST)
    result: np.ndarray = np.where(np.isnan(x), 0.0, np.where(np.isinf(x), np.nan, clipped)).astype(np.float32)
    return result


def _values(name: str, x: np.ndarray, a: float, b: float, boundaries: Sequence[float]) -> np.ndarray:
    logs = np.log1p(np.maximum(x, 0.0))
    if name == "bucketize":
        return np.searchsorted(boundaries, x, side="right").astype(np.float64)
    forms: dict[str, np.ndarray] = {
        "none": x,
        "log1p_clip0": logs,
        "log_shift3_missing0": np.log(np.where(x > -3.0, x + 3.0, 1.0)),
        "log_minus_min_plus2": np.log(np.maximum(x - a + 2.0, 1.0)),
        "standard": (x - a) / b,
        "log1p_standard": (logs - a) / b,
    }
    return forms[name]
