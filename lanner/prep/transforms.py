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

import math
from collections.abc import Sequence

import numpy as np

from lanner.errors import DataError, SchemaError
from lanner.kernels.numeric import CODES, Rules, transform
from lanner.schema import Dense

FITTED = {"log_minus_min_plus2": ("minimum",), "standard": ("mean", "std"), "log1p_standard": ("mean", "std")}
"""Parameters that a transform needs and that are fitted on the training rows where the schema does not give them."""


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


class Transforms:
    """The transforms of all dense columns of a schema, checked and ready.

    Raises SchemaError like `check`.
    """

    def __init__(self, dense: Sequence[Dense]) -> None:
        for feature in dense:
            check(feature)
        self._dense = tuple(dense)
        self._rules = _rules(self._dense)

    def __call__(self, block: np.ndarray) -> np.ndarray:
        """float64 or float32 [rows, D] with NaN for missing → float32 [rows, D].

        Raises DataError naming column, row and value where a value is infinite.
        """
        out = transform(self._rules, block)
        if out.size and np.isnan(out.min()):
            row, at = (int(place[0]) for place in np.nonzero(np.isnan(out)))
            value = block[row, at] if np.isinf(block[row, at]) else self._dense[at].fill
            source = self._dense[at].source
            raise DataError(f"dense column {source!r}, row {row}: {value}, expected a finite number")
        return out


def apply(dense: Dense, column: np.ndarray) -> np.ndarray:
    """Transform one column: float64 [n] with NaN for missing → float32 [n]. Raises like `Transforms`."""
    return Transforms([dense])(np.asarray(column, np.float64).reshape(-1, 1)).ravel()


def filled(dense: Dense, column: np.ndarray) -> np.ndarray:
    """The column with `fill` in place of missing values, where the feature has one (float64)."""
    return np.where(np.isnan(column), _fill(dense), column)


def before_scaling(dense: Dense, values: np.ndarray) -> np.ndarray:
    """What `mean` and `std` are taken of: the filled values, or their logarithm."""
    if dense.transform != "log1p_standard":
        return values
    result: np.ndarray = np.log1p(np.maximum(values, 0.0))
    return result


def _fill(dense: Dense) -> float:
    return math.nan if dense.fill is None or dense.transform == "log_shift3_missing0" else dense.fill


def _rules(dense: tuple[Dense, ...]) -> Rules:
    numbers, boundaries = np.zeros((2, len(dense))), [np.zeros(0)]
    for at, feature in enumerate(dense):
        known = feature.parameters
        if feature.transform == "bucketize":
            begin = sum(len(part) for part in boundaries)
            boundaries.append(_boundaries(feature))
            numbers[:, at] = begin, begin + len(boundaries[-1])
        else:
            numbers[:, at] = known.get("minimum", known.get("mean", 0.0)), known.get("std", 1.0) or 1.0
    codes = np.array([CODES[feature.transform] for feature in dense], np.int64)
    fill = np.array([_fill(feature) for feature in dense], np.float64)
    return Rules(codes, fill, numbers[0], numbers[1], np.concatenate(boundaries))


def _boundaries(dense: Dense) -> np.ndarray:
    return np.asarray(dense.parameters["boundaries"], np.float64)
