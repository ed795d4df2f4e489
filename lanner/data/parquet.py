"""Parquet parts: converted once to Arrow files in the cache folder, which can be memory-mapped."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lanner import storage
from lanner.data.cache import folder, making
from lanner.errors import DataError
from lanner.schema import Schema, Sparse

BATCH_ROWS = 1 << 16


def arrow_copy(path: str, name: str, checksum: str, schema: Schema) -> str:
    """Path of an Arrow IPC copy of the local Parquet file `path`, made if there is none.

    The numbers may lie in one list column `dense` or in a column each. `name` is the file's name in messages. Raises
    DataError naming it when it is damaged, lacks a column or holds values that do not fit the schema.
    """
    layout = arrow_schema(schema)
    key = hashlib.blake2b(layout.to_string().encode(), digest_size=8).hexdigest()
    target = folder() / f"{checksum}-{key}.arrow"
    with making(target) as missing:
        if missing:
            _convert(path, target, layout, schema, name)
    return str(target)


def _convert(path: str, target: Path, layout: pa.Schema, schema: Schema, name: str) -> None:
    try:
        with pq.ParquetFile(path) as source, storage.publish(target) as copy, pa.ipc.new_file(copy, layout) as writer:
            for batch in source.iter_batches(batch_size=BATCH_ROWS):
                writer.write_batch(_conform(batch, layout, schema, name))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{name}: damaged Parquet file: {error}") from error


def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns of a dataset file: ids in the smallest unsigned type that holds their table, the rest as float32."""
    fields = [pa.field(label.name, pa.float32()) for label in schema.labels]
    if schema.dense:
        fields.append(pa.field("dense", pa.list_(pa.float32(), len(schema.dense))))
    fields += [pa.field(feature.name, _id_type(schema, feature)) for feature in schema.sparse]
    if schema.weight:
        fields.append(pa.field(schema.weight, pa.float32()))
    if schema.group:
        fields.append(pa.field(schema.group, pa.int64()))
    return pa.schema(fields)


def _id_type(schema: Schema, feature: Sparse) -> pa.DataType:
    rows = schema.table(feature.table_name).rows
    largest = rows - 1 if isinstance(rows, int) else 2**63
    types = ((2**8, pa.uint8()), (2**16, pa.uint16()), (2**32, pa.uint32()))
    element = next((kind for above, kind in types if largest < above), pa.int64())
    return element if feature.one_hot else pa.list_(element)


def _conform(batch: pa.RecordBatch, layout: pa.Schema, schema: Schema, name: str) -> pa.RecordBatch:
    """`batch` with exactly the columns of `layout`, cast where no value changes."""
    arrays = []
    for field in layout:
        if field.name == "dense" and schema.dense and "dense" not in batch.schema.names:
            arrays.append(_join_dense(batch, schema, name))
            continue
        column = _column(batch, field.name, name)
        try:
            arrays.append(column.cast(field.type))
        except pa.ArrowException as error:
            raise DataError(f"{name}: column {field.name!r} of type {column.type}: {error}") from error
    return pa.record_batch(arrays, schema=layout)


def _join_dense(batch: pa.RecordBatch, schema: Schema, name: str) -> pa.Array:
    """One list column from a column for each number."""
    columns = []
    for number in schema.dense:
        column = _column(batch, number.name, name)
        if column.null_count:
            raise DataError(f"{name}: column {number.name!r} holds nulls; expected none")
        columns.append(column.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False))
    return pa.FixedSizeListArray.from_arrays(pa.array(np.stack(columns, axis=1).reshape(-1)), len(columns))


def _column(batch: pa.RecordBatch, column: str, name: str) -> pa.Array:
    if column not in batch.schema.names:
        raise DataError(f"{name}: column {column!r} is missing; the file has {', '.join(batch.schema.names)}")
    return batch.column(column)
