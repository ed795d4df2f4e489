"""`PrepSummary`: what a run read, dropped and defaulted."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from lanner.schema import Schema


@dataclass
class FileSummary:
    """One input file; `reused` when an earlier run had already staged it."""

    file: str
    rows: int
    rejected: dict[str, int]
    reused: bool


@dataclass
class FeatureSummary:
    """Missing values and, for categorical features, values without an id of their own, by split.

    `table_rows` is the size of the embedding table, "dynamic" where it grows with its keys, None for a number.
    """

    name: str
    table_rows: int | Literal["dynamic"] | None = None
    missing: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)


class FeatureCounts:
    """Adds up missing and unknown values of all features (dense ones first) by split."""

    def __init__(self, schema: Schema) -> None:
        numbers = [FeatureSummary(number.name) for number in schema.dense]
        self._features = numbers + [FeatureSummary(f.name, _rows(schema, f.table_name)) for f in schema.sparse]
        self._sums: dict[str, np.ndarray] = {}

    def add(self, split: str, missing: np.ndarray, unknown: np.ndarray) -> None:
        """Count a batch: int64 [features] each."""
        found = np.stack([missing, unknown])
        self._sums[split] = self._sums.get(split, 0) + found

    def summaries(self) -> list[FeatureSummary]:
        """One entry a feature."""
        for index, feature in enumerate(self._features):
            for split, (missing, unknown) in self._sums.items():
                feature.missing[split] = int(missing[index])
                if feature.table_rows is not None:
                    feature.unknown[split] = int(unknown[index])
        return self._features


def _rows(schema: Schema, table: str) -> int | Literal["dynamic"]:
    rows = schema.table(table).rows
    assert rows is not None
    return rows


@dataclass
class PrepSummary:
    """See the module's docstring. `rows` counts by split, `rejected` dropped rows by reason; `seconds` is wall time.

    `unmatched` counts keys that no side table has, where there are any to join.
    """

    out: str
    rows: dict[str, int]
    files: list[FileSummary]
    rejected: dict[str, int]
    features: list[FeatureSummary]
    split: dict[str, Any]
    seconds: float = 0.0
    unmatched: int | None = None

    @property
    def total_rows(self) -> int:
        """Rows written."""
        return sum(self.rows.values())

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        values = asdict(self)
        if self.unmatched is None:
            del values["unmatched"]
        return values

    def table(self) -> tuple[list[str], list[list[Any]]]:
        """Column heads and one row a feature, for people: shares of missing values, and of unknown ones by split."""
        rows: list[list[Any]] = []
        for feature in self.features:
            missing = _share(sum(feature.missing.values()), self.total_rows)
            unknown = [
                None if feature.table_rows is None else _share(feature.unknown[split], count)
                for split, count in self.rows.items()
            ]
            rows.append([feature.name, feature.table_rows, missing, *unknown])
        return ["feature", "table rows", "missing", *(f"unknown in {split}" for split in self.rows)], rows


def _share(count: int, rows: int) -> str:
    return f"{100 * count / rows:.2f} %" if count else "0"
