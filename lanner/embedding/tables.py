"""What an embedding collection is made of: tables, and the features that look them up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lanner import storage
from lanner.embedding.dynamic.config import DynamicConfig
from lanner.embedding.initializers import Initializer
from lanner.embedding.optimizers import Optimizer
from lanner.errors import ConfigError
from lanner.schema import Schema

_LONGEST_NAME = 255


@dataclass(frozen=True)
class TableConfig:
    """A table of `rows` vectors of `dim` numbers, or a dynamic one that gets a row for every new key.

    `initializer` defaults to uniform in ±sqrt(1 / rows) (dynamic: see `DynamicTable`); `optimizer` to the
    collection's. `dtype` is the format of the weights while training: fp16 and bf16 are rounded stochastically,
    optimizer state stays float32. `dynamic` says how a dynamic table grows and shrinks.
    """

    name: str
    rows: int | Literal["dynamic"]
    dim: int
    initializer: Initializer | None = None
    optimizer: Optimizer | None = None
    dtype: Literal["fp32", "fp16", "bf16"] = "fp32"
    dynamic: DynamicConfig | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or len(storage.safe_name(self.name)) > _LONGEST_NAME:
            raise ConfigError(
                f"table {self.name!r}: the name is no text that can name a directory: expected 1 to {_LONGEST_NAME} "
                "characters, of which all but letters and digits may count for several"
            )
        if self.rows == "dynamic":
            object.__setattr__(self, "dynamic", self.dynamic or DynamicConfig())
        elif self.dynamic is not None:
            raise ConfigError(f"table {self.name!r}: `dynamic` is given, but rows is {self.rows!r}, not 'dynamic'")
        elif not isinstance(self.rows, int) or self.rows < 1:
            raise ConfigError(
                f"table {self.name!r}: rows is {self.rows!r}, expected a whole number of at least 1, or 'dynamic'"
            )
        if not isinstance(self.dim, int) or self.dim < 1:
            raise ConfigError(f"table {self.name!r}: dim is {self.dim!r}, expected a whole number of at least 1")
        if self.dtype not in ("fp32", "fp16", "bf16"):
            raise ConfigError(f"table {self.name!r}: dtype is {self.dtype!r}, expected fp32, fp16 or bf16")

    @property
    def static_rows(self) -> int:
        """The number of rows of a static table."""
        assert isinstance(self.rows, int)
        return self.rows


@dataclass(frozen=True)
class FeatureConfig:
    """A sparse feature: its ids address `table`; the rows of a bag are pooled, or given one by one ("none")."""

    name: str
    table: str
    pooling: Literal["sum", "mean", "max", "none"] = "sum"

    def __post_init__(self) -> None:
        if self.pooling not in ("sum", "mean", "max", "none"):
            raise ConfigError(f"feature {self.name!r}: pooling is {self.pooling!r}, expected sum, mean, max or none")


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

    Raises ConfigError for a table whose rows are not known.
    """
    tables = []
    for table in schema.tables:
        if table.rows is None:
            raise ConfigError(f"table {table.name!r}: the schema does not give its rows; run prep to fit it")
        tables.append(TableConfig(table.name, table.rows, dim, initializer))
    return tables, [FeatureConfig(feature.name, feature.table_name, feature.pooling) for feature in schema.sparse]
