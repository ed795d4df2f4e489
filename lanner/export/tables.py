"""Embedding tables of a served model."""

from __future__ import annotations

import json
import os

from lanner import storage
from lanner.embedding import EmbeddingCollection, FeatureConfig, TableConfig
from lanner.embedding.initializers import Constant
from lanner.errors import DataError
from lanner.schema import Schema


def load_tables(directory: str | os.PathLike[str], schema: Schema) -> EmbeddingCollection:
    """The tables of `schema` dumped in `directory`, for lookups only (no optimizer state).

    Raises DataError naming the table whose files do not fit the schema.
    """
    configs = []
    for table in schema.tables:
        path = storage.join(directory, table.name, "table.json")
        described = json.loads(storage.read_text(path))
        if described["rows"] != table.rows:
            raise DataError(f"{path}: {described['rows']} rows, but the schema gives table {table.name!r} {table.rows}")
        configs.append(TableConfig(table.name, described["rows"], described["dim"], Constant(0.0)))
    features = [FeatureConfig(f.name, f.table_name, f.pooling) for f in schema.sparse if f.pooling != "none"]
    collection = EmbeddingCollection(configs, features).eval()
    collection.embedding_load(directory, optimizer_state=False)
    return collection
