"""Small datasets written with PyArrow alone, so that reading is tested apart from prep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lanner.schema import Schema

Table = dict[str, Any]
MakeDataset = Callable[..., Path]


def make_schema(rows: Sequence[int] = (10, 300, 70_000), dense: int = 3, **extra: Any) -> Schema:
    """One-hot features s0, s1, ... over tables of the given rows, and numbers d0, d1, ..."""
    return Schema.parse(
        {
            "labels": [{"name": "label"}],
            "dense": [{"name": f"d{index}"} for index in range(dense)],
            "sparse": [{"name": f"s{index}", "raw": "hex"} for index in range(len(rows))],
            "tables": [{"name": f"s{index}", "rows": count} for index, count in enumerate(rows)],
            **extra,
        }
    )


def smallest(rows: int) -> Any:
    return next((t for t in (np.uint8, np.uint16, np.uint32) if rows - 1 <= np.iinfo(t).max), np.int64)


def make_rows(schema: Schema, count: int, seed: int = 0) -> Table:
    """Random columns for a schema of one-hot features; the first number of row i is i."""
    random = np.random.default_rng(seed)
    columns: Table = {"label": random.integers(0, 2, count).astype(np.uint8)}
    if schema.dense:
        columns["dense"] = random.normal(size=(count, len(schema.dense))).astype(np.float32)
        columns["dense"][:, 0] = np.arange(count)
    for feature in schema.sparse:
        rows = int(schema.table(feature.table_name).rows or 0)
        columns[feature.name] = random.integers(0, rows, count).astype(smallest(rows))
    return columns


def arrow_table(columns: Table) -> pa.Table:
    arrays = {}
    for name, values in columns.items():
        if isinstance(values, np.ndarray) and values.ndim == 2:
            flat = pa.array(np.ascontiguousarray(values).reshape(-1))
            arrays[name] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        else:
            arrays[name] = values if isinstance(values, pa.Array) else pa.array(values)
    return pa.table(arrays)


def write_file(path: Path, columns: Table, batch_rows: int = 1000) -> None:
    table = arrow_table(columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=batch_rows)
        return
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
