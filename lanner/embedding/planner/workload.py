"""`Workload`: what a training run asks of its tables, as a planner sees it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from lanner.embedding.backed.config import Backing
from lanner.embedding.dynamic import footprint
from lanner.embedding.dynamic.config import DynamicConfig
from lanner.embedding.optimizers import Optimizer
from lanner.embedding.sharding.shards import is_dynamic
from lanner.embedding.tables import FeatureConfig, TableConfig
from lanner.errors import ConfigError
from lanner.schema import Schema


@dataclass(frozen=True)
class Load:
    """One table, and what a sample asks of it on average.

    Attributes:
        table: its configuration.
        optimizer: what updates it.
        rows: its rows; of a dynamic table the keys that it is expected to hold.
        ids: ids of a sample, over all features that share the table.
        vectors: vectors of the output: one for each such feature, or where it is not pooled for each id.
        keys: of a dynamic table, the most keys that its data can hold, where that is known.
    """

    table: TableConfig
    optimizer: Optimizer
    rows: int
    ids: float
    vectors: float
    keys: int | None = None

    @property
    def name(self) -> str:
        return self.table.name

    def distinct(self, samples: float) -> float:
        """Different rows that `samples` samples name, if every row is as likely as any other: skewed ids name fewer."""
        draws = samples * self.ids
        if self.rows == 1:
            return float(min(draws, 1.0))
        return -self.rows * math.expm1(draws * math.log1p(-1 / self.rows))


@dataclass(frozen=True)
class Dense:
    """The dense side of a model: `weights` numbers, `activations` numbers a sample (inputs and outputs of its matrix
    products), `inputs` dense features a sample, and `state` bytes of optimizer state a weight.
    """

    weights: int = 0
    activations: int = 0
    inputs: int = 0
    state: int = 0

    @classmethod
    def of(cls, module: nn.Module, inputs: int, optimizer: Optimizer) -> Dense:
        """All parameters of a model but those of its `embedding`; they may be on the meta device."""
        named = [parameter for name, parameter in module.named_parameters() if not name.startswith("embedding.")]
        return cls(
            weights=sum(parameter.numel() for parameter in named),
            activations=sum(sum(parameter.shape) for parameter in named if parameter.dim() == 2),
            inputs=inputs,
            state=state_bytes(optimizer, 1),
        )


@dataclass(frozen=True)
class Workload:
    """The tables' loads, the samples of a step over all processes, the dense side, and what has tables on disk."""

    loads: tuple[Load, ...]
    batch_size: int
    dense: Dense = Dense()
    backing: Backing | None = None

    @classmethod
    def of(
        cls,
        tables: Sequence[TableConfig],
        features: Sequence[FeatureConfig],
        optimizer: Optimizer,
        batch_size: int,
        dense: Dense = Dense(),
        hotness: Mapping[str, float] | None = None,
        rows: Mapping[str, int] | None = None,
        samples: int | None = None,
    ) -> Workload:
        """Of the tables and features of a collection whose default optimizer is `optimizer`.

        `hotness` gives the ids of a sample by feature (default 1), `rows` the expected rows by dynamic table (default:
        the most that its limits allow), `samples` the number of training rows, where it is known. Raises
        ConfigError naming the feature or table that is not there, and the dynamic table whose size nobody says.
        """
        hotness, rows = hotness or {}, rows or {}
        _check("hotness: feature", hotness, (feature.name for feature in features))
        _check("rows: dynamic table", rows, (table.name for table in tables if is_dynamic(table)))
        loads = []
        for table in tables:
            using = [feature for feature in features if feature.table == table.name]
            ids = [hotness.get(feature.name, 1.0) for feature in using]
            vectors = [n if feature.pooling == "none" else 1.0 for feature, n in zip(using, ids, strict=True)]
            own = table.optimizer or optimizer
            keys = None if samples is None else math.ceil(samples * sum(ids))
            loads.append(Load(table, own, _rows(table, own, rows.get(table.name)), sum(ids), sum(vectors), keys))
        return cls(tuple(loads), batch_size, dense)

    @property
    def tables(self) -> list[TableConfig]:
        return [load.table for load in self.loads]


def hotness_of(schema: Schema, given: Mapping[str, float] | None = None) -> dict[str, float]:
    """Ids of a sample by feature: as given, else what the schema says, of ragged bags the most that it allows.

    Raises ConfigError naming the ragged feature of which nobody says it, or one that is not there.
    """
    given = given or {}
    _check("hotness: feature", given, (feature.name for feature in schema.sparse))
    found: dict[str, float] = {}
    for feature in schema.sparse:
        ids = given.get(feature.name, feature.hotness or feature.max_hotness)
        if ids is None:
            raise ConfigError(
                f"feature {feature.name!r} has bags of any length and no max_hotness: say how many ids to expect in "
                f"one, such as --hotness {feature.name}=10"
            )
        found[feature.name] = float(ids)
    return found


def state_bytes(optimizer: Optimizer, dim: int) -> int:
    """Bytes of optimizer state of a row of `dim` weights."""
    states = optimizer.row_states(dim).values()
    return sum(np.dtype(state.dtype).itemsize * math.prod(state.shape) for state in states)


def _check(what: str, given: Mapping[str, float], names: Iterable[str]) -> None:
    known = list(names)
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"{what} {name!r}: there is none of that name; there are {', '.join(known) or 'none'}")
        if not 0 < value < math.inf:
            raise ConfigError(f"{what} {name!r} is {value!r}, expected a number above 0")


def _rows(table: TableConfig, optimizer: Optimizer, expected: int | None) -> int:
    if not is_dynamic(table):
        return table.static_rows
    limits = table.dynamic or DynamicConfig()
    if expected is None and limits.max_rows is None and limits.max_bytes is None:
        raise ConfigError(
            f"table {table.name!r} is dynamic and has no limit: say how many rows to expect, such as "
            f"--rows {table.name}=1000000, or set its max_rows or max_bytes"
        )
    most = footprint.most_rows(table, optimizer)
    return most if expected is None else min(int(expected), most)
