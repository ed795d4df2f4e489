"""Dense transforms by name: float64 with NaN for missing → float32, finite for every finite input.

Three conventions go by the name of "DLRM preprocessing" and differ; each has its own name here. x is the raw value,
or `fill` where the cell is missing; where `fill` is null a missing cell becomes 0.0 after the transform.

| name | value | used by |
|---|---|---|
| `none` | x | |
| `log1p_clip0` | ln(1 + max(x, 0)) | facebookresearch/dlrm |
| `log_shift3_missing0` | ln(x + 3); 0 where x <= -3 or the cell is missing | NVIDIA DLRM, NVTabular |
| `log_minus_min_plus2` | ln(max(x - minimum + 2, 1)) | TorchRec and MLPerf DLRM |
| `standard` | (x - mean) / std | |
| `log1p_standard` | (ln(1 + max(x, 0)) - mean) / std | |
| `bucketize` | how many of the ascending `boundaries` are <= x, as a float | |

`minimum` is one for all columns with that transform together, as in MLPerf (there over each day's file, here over the
training rows). A std of 0 counts as 1. Results beyond float32 are cut to its largest finite value.
"""

from __future__ import annotations

import numpy as np

from lanner.errors import DataError, SchemaError
from lanner.schema import Dense

FITTED = {"log_minus_min_plus2": ("minimum",), "standard": ("mean", "std"), "log1p_standard": ("mean", "std")}
"""Parameters that a transform needs and that are fitted on the training rows where the schema does not give them."""

_LARGEST = float(np.finfo(np.float32).max)


def check(dense: Dense) -> None:
    """Raise SchemaError where parameters are missing, unknown or of no use for the transform."""
    where, name = f"dense column {dense.name!r}", dense.transform
    needed = ("boundaries",) if name == "bucketize" else FITTED.get(name, ())
    if absent := [key for key in needed if key not in dense.parameters]:
        raise SchemaError(f"{where}: transform {name} lacks its parameter {absent[0]!r}")
    if unknown := sorted(set(dense.parameters) - set(needed)):
        raise SchemaError(f"{where}: transform {name} has no parameter {unknown[0]!r}")
    if name == "log_shift3_missing0" and dense.fill:
        raise SchemaError(f"{where}: fill {dense.fill:g} has no effect with {name}, where a missing cell is 0.0")
    for key, value in dense.parameters.items():
        if isinstance(value, tuple) != (key == "boundaries") or not np.all(np.isfinite(value)):
            raise SchemaError(f"{where}: parameter {key} is {value!r}, expected finite numbers")
    if name == "bucketize" and np.any(np.diff(_boundaries(dense)) <= 0):
        raise SchemaError(f"{where}: boundaries {dense.parameters['boundaries']} do not ascend")


def apply(dense: Dense, column: np.ndarray) -> np.ndarray:
    """Transform one column: float64 [n] with NaN for missing → float32 [n].

    Raises DataError naming column, row and value where a value is infinite. `check` the feature beforehand.
    """
    values = filled(dense, column)
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise DataError(f"dense column {dense.source!r}, row {row}: {values[row]} where a finite number is expected")
    missing = np.isnan(values)
    with np.errstate(over="ignore"):
        values = _transformed(dense, values)
    values = np.clip(values, -_LARGEST, _LARGEST)
    values[missing] = 0.0
    result: np.ndarray = values.astype(np.float32)
    return result


def filled(dense: Dense, column: np.ndarray) -> np.ndarray:
    """The column with `fill` in place of missing values, where the feature has one (float64)."""
    if dense.fill is None or dense.transform == "log_shift3_missing0":
        return np.asarray(column, np.float64)
    return np.where(np.isnan(column), dense.fill, column)


def before_scaling(dense: Dense, values: np.ndarray) -> np.ndarray:
    """What `mean` and `std` are taken of: the filled values, or their logarithm."""
    return _log1p(values) if dense.transform == "log1p_standard" else values


def _log1p(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.log1p(np.maximum(x, 0.0))
    return result


def _transformed(dense: Dense, x: np.ndarray) -> np.ndarray:
    name = dense.transform
    if name == "log1p_clip0":
        return _log1p(x)
    if name == "log_shift3_missing0":
        return np.log(np.where(x > -3.0, x + 3.0, 1.0))
    if name == "log_minus_min_plus2":
        return np.log(np.maximum(x - _number(dense, "minimum") + 2.0, 1.0))
    if name in ("standard", "log1p_standard"):
        return (before_scaling(dense, x) - _number(dense, "mean")) / (_number(dense, "std") or 1.0)
    if name == "bucketize":
        return np.searchsorted(_boundaries(dense), x, side="right").astype(np.float64)
    return x


def _number(dense: Dense, key: str) -> float:
    value = dense.parameters[key]
    assert isinstance(value, float)
    return value


def _boundaries(dense: Dense) -> np.ndarray:
    return np.asarray(dense.parameters["boundaries"], np.float64)
