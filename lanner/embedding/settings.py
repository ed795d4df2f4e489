"""`EmbeddingSettings`: what a recipe says of embedding tables beyond the schema, its section `embedding`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, PlainValidator, model_validator

from lanner.embedding import initializers, optimizers
from lanner.embedding.backed.config import Backing
from lanner.embedding.dynamic.config import DynamicConfig
from lanner.embedding.sharding.placement import Plan
from lanner.embedding.tables import TableConfig
from lanner.errors import ConfigError
from lanner.quantities import parse_amount
from lanner.validation import built, validated

OTHERS = "*"
"""In place of a table's name: what holds for every table that does not say it itself."""


def _given(kind: Any, parse: Callable[[dict[str, Any]], Any]) -> BeforeValidator:
    """Take objects of `kind` as they are and parse mappings; what cannot be used is an error of the key."""

    def read(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        if not isinstance(value, dict):
            raise ValueError("expected a mapping")
        try:
            return parse(value)
        except ConfigError as error:
            raise ValueError(str(error)) from error

    return BeforeValidator(read)


def _plan(value: Any) -> Any:
    if not isinstance(value, str | dict | None):
        raise ValueError("expected the name of a file, or a mapping")
    return value


OptimizerSetting = Annotated[Any, _given(optimizers.Optimizer, optimizers.parse), PlainSerializer(optimizers.describe)]
"""An optimizer, or the mapping that `lanner.embedding.optimizers.describe` gives."""
_Initializer = Annotated[Any, _given(initializers.Given, initializers.parse), PlainSerializer(initializers.describe)]
_Dynamic = Annotated[
    Any, _given(DynamicConfig, lambda values: built(DynamicConfig, values, "dynamic table")), PlainSerializer(asdict)
]


class TableSettings(BaseModel):
    """What is said of a table; None stands for "not said". `dynamic` is for tables that the schema calls dynamic."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    dtype: Literal["fp32", "bf16", "fp16"] | None = None
    optimizer: OptimizerSetting | None = None
    initializer: _Initializer | None = None
    dynamic: _Dynamic | None = None


class EmbeddingSettings(BaseModel):
    """`tables` by name ("*" says for all what they do not say themselves), and what matters to one run alone.

    `plan` places the tables on processes: the file of a plan, or what stands in one. `memory` bytes, or a text such as
    "8 GiB", are all that static tables may take in a process; those that do not fit live in the directory `backing`
    (default: the system's temporary one), and rows are fetched `ahead` batches ahead. See `Backing`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    tables: dict[str, TableSettings] = {}
    plan: Annotated[Any, PlainValidator(_plan)] = None
    memory: int | str | None = None
    backing: str | None = None
    ahead: int = Field(default=2, ge=0)

    @model_validator(mode="after")
    def _check_memory(self) -> EmbeddingSettings:
        if self.memory is None and self.backing is not None:
            raise ValueError("`backing` is for tables that exceed `memory`, which is not given")
        if self.memory is not None:
            try:
                parse_amount(self.memory, "memory")
            except ConfigError as error:
                raise ValueError(str(error)) from error
        return self

    @classmethod
    def of(cls, given: EmbeddingSettings | Mapping[str, Any] | None) -> EmbeddingSettings:
        """Settings from what a caller gives; raises ConfigError naming the key at fault."""
        if isinstance(given, EmbeddingSettings):
            return given
        settings: EmbeddingSettings = validated(cls, given or {}, "embedding")
        return settings

    def lasting(self) -> dict[str, Any]:
        """What decides how rows are made and trained, JSON-able; a checkpoint keeps it, unlike a run's own choices."""
        return self.model_dump(mode="json", include={"tables"}, exclude_none=True)

    def load_backing(self) -> Backing | None:
        """Where tables live that exceed `memory`. Raises ConfigError where the directory is not there."""
        return None if self.memory is None else Backing(self.memory, self.backing, self.ahead)

    def load_plan(self) -> Plan | None:
        """The plan, read where it is a file. Raises ConfigError where it cannot be used."""
        if self.plan is None or isinstance(self.plan, str):
            return None if self.plan is None else Plan.load(self.plan)
        return Plan.from_yaml(yaml.safe_dump(self.plan), "embedding.plan")

    def applied(self, tables: list[TableConfig]) -> list[TableConfig]:
        """`tables` with these settings. Raises ConfigError naming a table that is not there or cannot be dynamic."""
        known = {table.name for table in tables}
        for name in self.tables.keys() - known - {OTHERS}:
            raise ConfigError(
                f"embedding.tables: there is no table {name!r}; there are {', '.join(sorted(known)) or 'none'}"
            )
        others = self.tables.get(OTHERS, TableSettings())
        if others.dynamic is not None and all(table.rows != "dynamic" for table in tables):
            raise ConfigError(f"embedding.tables.{OTHERS}.dynamic: the schema has no dynamic table; {_KEYS}")
        return [_applied(table, self.tables.get(table.name, TableSettings()), others) for table in tables]


_KEYS = "`lanner prep --keys` makes dynamic ones"


def _applied(table: TableConfig, own: TableSettings, others: TableSettings) -> TableConfig:
    said = {**dict(others), **{key: value for key, value in own if value is not None}}
    if table.rows != "dynamic":
        if own.dynamic is not None:
            raise ConfigError(
                f"embedding.tables.{table.name}.dynamic: the schema gives the table a fixed number of rows; {_KEYS}"
            )
        del said["dynamic"]
    return replace(table, **{key: value for key, value in said.items() if value is not None})
