"""Embedding tables of a served model."""

from __future__ import annotations

import os

from lanner.embedding import DynamicConfig, EmbeddingCollection, FeatureConfig, TableConfig, persistence
from lanner.embedding.initializers import Constant
from lanner.embedding.sharding.placement import Plan
from lanner.errors import DataError
from lanner.schema import Schema, Table


def load_tables(directory: str | os.PathLike[str], schema: Schema) -> EmbeddingCollection:
    """The tables of `schema` dumped in `directory`, for lookups only (no optimizer state).

    Keys that a dynamic table does not know read its default; its `counters.unknown` counts them. Raises DataError
    naming the table whose files are missing, damaged or do not fit the schema.
    """
    features = [FeatureConfig(f.name, f.table_name, f.pooling) for f in schema.sparse if f.pooling != "none"]
    configs = [config_of(table, persistence.describe(directory, table.name)) for table in schema.tables]
    collection = EmbeddingCollection(configs, features, plan=Plan.default(configs, 1)).eval()
    collection.embedding_load(directory, optimizer_state=False)
    return collection


def config_of(table: Table, stored: persistence.Description) -> TableConfig:
    """What a stored table is, apart from how it was trained. Raises DataError unless it is the schema's `table`."""
    rows = "dynamic" if stored.dynamic else stored.rows
    if rows != table.rows:
        raise DataError(f"table {table.name!r}: the stored table has rows {rows!r}, the schema's {table.rows!r}")
    if not stored.dynamic:
        return TableConfig(table.name, stored.rows, stored.dim, Constant(0.0))
    keeping_all = DynamicConfig(default=stored.default or 0.0, eviction="none")
    return TableConfig(table.name, "dynamic", stored.dim, Constant(0.0), dynamic=keeping_all)
