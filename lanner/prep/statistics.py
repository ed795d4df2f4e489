"""`DenseStatistics`: what the fitted transforms need to know of the training rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from lanner.errors import DataError
from lanner.kernels.moments import add_moments
from lanner.prep.transforms import FITTED, before_scaling, filled
from lanner.schema import Dense, Schema

_CONSTANT = 2.0**-80
"""A variance below this share of the mean square is what rounding leaves of a constant column."""


@dataclass(slots=True)
class _Column:
    count: int = 0
    minimum: float = math.inf
    sums: np.ndarray = field(default_factory=lambda: np.zeros(4))


class DenseStatistics:
    """Minimum, mean and standard deviation (of the population) of each dense column with a fitted transform.

    Sums are kept in twice the working precision: the result is the same however the rows are cut into chunks.
    Values are those after `fill`; cells that stay missing do not count. Add training rows only.
    """

    def __init__(self, schema: Schema) -> None:
        self._dense = schema.dense
        self._columns = {i: _Column() for i, dense in enumerate(schema.dense) if _unfitted(dense)}

    @property
    def needed(self) -> bool:
        """False when no column has anything to fit, so that `add` does nothing."""
        return bool(self._columns)

    def add(self, dense: np.ndarray) -> None:
        """Take in the dense part of a chunk, float64 or float32 [rows, D] with NaN for missing."""
        for index, column in self._columns.items():
            values = dense[:, index].astype(np.float64, copy=False)
            values = before_scaling(self._dense[index], filled(self._dense[index], values))
            column.count += add_moments(values, column.sums)
            if len(values) and not math.isnan(lowest := float(np.fmin.reduce(values))):
                column.minimum = min(column.minimum, lowest)

    def merge(self, other: DenseStatistics) -> None:
        """Add the rows that `other`, of the same schema, has seen."""
        for index, column in self._columns.items():
            theirs = other._columns[index]
            column.count += theirs.count
            column.minimum = min(column.minimum, theirs.minimum)
            for at in (0, 2):
                total = _exact(column.sums, at) + _exact(theirs.sums, at)
                column.sums[at] = float(total)
                column.sums[at + 1] = float(total - Fraction(column.sums[at]))

    def state(self) -> dict[str, Any]:
        """A JSON-able copy, exact, for `restore`."""
        return {
            self._dense[i].name: {"count": c.count, "minimum": _finite(c.minimum), "sums": c.sums.tolist()}
            for i, c in self._columns.items()
        }

    @classmethod
    def restore(cls, schema: Schema, state: dict[str, Any]) -> DenseStatistics:
        """Statistics from `state`; raises DataError when it was made for other columns."""
        statistics = cls(schema)
        names = [schema.dense[i].name for i in statistics._columns]
        if names != list(state):
            raise DataError(f"dense statistics are of columns {list(state)}, expected {names}")
        for column, kept in zip(statistics._columns.values(), state.values(), strict=True):
            column.count, column.sums = kept["count"], np.array(kept["sums"], np.float64)
            column.minimum = math.inf if kept["minimum"] is None else kept["minimum"]
        return statistics

    def fit(self, schema: Schema) -> Schema:
        """`schema` with the fitted parameters; those it gives itself stay. Columns without a value get neutral ones.

        Raises DataError when the values are too large for their variance to be a float64.
        """
        shared = [c.minimum for i, c in self._columns.items() if self._dense[i].transform == "log_minus_min_plus2"]
        lowest = _finite(min(shared, default=math.inf)) or 0.0
        dense = list(schema.dense)
        for index, column in self._columns.items():
            feature = dense[index]
            found = {"minimum": lowest} if feature.transform == "log_minus_min_plus2" else _scaling(feature, column)
            dense[index] = feature.model_copy(update={"parameters": {**found, **feature.parameters}})
        return schema.model_copy(update={"dense": tuple(dense)})


def _unfitted(dense: Dense) -> bool:
    return any(key not in dense.parameters for key in FITTED.get(dense.transform, ()))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _exact(sums: np.ndarray, at: int) -> Fraction:
    return Fraction(float(sums[at])) + Fraction(float(sums[at + 1]))


def _scaling(dense: Dense, column: _Column) -> dict[str, float]:
    if not column.count:
        return {"mean": 0.0, "std": 1.0}
    if not np.isfinite(column.sums).all():
        raise DataError(f"dense column {dense.source!r}: values too large to standardise")
    mean = _exact(column.sums, 0) / column.count
    squares = _exact(column.sums, 2) / column.count
    variance = float(squares - mean * mean)
    if variance < float(squares) * _CONSTANT:
        variance = 0.0
    return {"mean": float(mean), "std": math.sqrt(variance)}
