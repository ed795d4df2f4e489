"""What an embedding collection is made of: tables, and the features that look them up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lanner.embedding.initializers import Initializer
from lanner.embedding.optimizers import Optimizer
from lanner.errors import ConfigError
from lanner.schema import Schema


@dataclass(frozen=True)
class TableConfig:
    """A table of `rows` vectors of `dim` float32.

    `initializer` defaults to uniform in ±sqrt(1 / rows); `optimizer` to the collection's.
    """

    name: str
    rows: int
    dim: int
    initializer: Initializer | None = None
    optimizer: Optimizer | None = None

    def __post_init__(self) -> None:
        for what, value in (("rows", self.rows), ("dim", self.dim)):
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"table {self.name!r}: {what} is {value!r}, expected a whole number of at least 1")


@dataclass(frozen=True)
class FeatureConfig:
    """A sparse feature: its ids address `table`; the rows of a bag are pooled."""

    name: str
    table: str
    pooling: Literal["sum", "mean", "max"] = "sum"

    def __post_init__(self) -> None:
        if self.pooling not in ("sum", "mean", "max"):
            raise ConfigError(f"feature {self.name!r}: pooling is {self.pooling!r}, expected sum, mean or max")


def check(tables: Sequence[TableConfig], features: Sequence[FeatureConfig]) -> None:
    """Raise ConfigError where a name is used twice, a feature's table is missing, or a table has no feature."""
    for what, names in (("table", [t.name for t in tables]), ("feature", [f.name for f in features])):
        for name, count in Counter(names).items():
            if count > 1:
                raise ConfigError(f"{what} {name!r} is given {count} times")
    known = {table.name for table in tables}
    for feature in features:
        if feature.table not in known:
            raise ConfigError(f"feature {feature.name!r}: there is no table {feature.table!r}")
    for name in known - {feature.table for feature in features}:
        raise ConfigError(f"table {name!r}: no feature uses it")


def from_schema(
    schema: Schema, dim: int, initializer: Initializer | None = None
) -> tuple[list[TableConfig], list[FeatureConfig]]:
    """Tables of width `dim`, and features, as a fitted schema lists them.

    Raises ConfigError for a table whose rows are not known and for a feature without pooling.
    """
    tables = []
    for table in schema.tables:
        if not isinstance(table.rows, int):
            raise ConfigError(f"table {table.name!r}: the schema gives rows = {table.rows!r}; run prep to fit it")
        tables.append(TableConfig(table.name, table.rows, dim, initializer))
    features = []
    for feature in schema.sparse:
        if feature.pooling == "none":
            raise ConfigError(f"feature {feature.name!r}: pooling 'none' (a sequence) cannot be looked up as a bag")
        features.append(FeatureConfig(feature.name, feature.table_name, feature.pooling))
    return tables, features
