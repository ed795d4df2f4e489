"""Blocks from and to other forms of rows: batches, encoded rows, fixed-width matrices of ids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lanner.data.batch import Batch
from lanner.data.formats.base import Array, Block, Ids
from lanner.data.formats.checks import exactly
from lanner.errors import ConfigError, DataError
from lanner.prep.encoder import Encoded, IdColumn, id_dtype
from lanner.prep.transforms import Transforms
from lanner.schema import Schema


def from_batch(batch: Batch, file: str, row: int) -> Block:
    """The rows of a dataset's batch."""
    values, rows = batch.bags.values.numpy(), len(batch)
    columns = []
    for at in range(len(batch.bags.names)):
        if batch.bags.offsets is None:
            columns.append(Ids(values[at * rows : (at + 1) * rows]))
        else:
            ends = batch.bags.offsets[at * rows : (at + 1) * rows + 1].numpy().astype(np.int64)
            columns.append(Ids(values[ends[0] : ends[-1]], ends - ends[0]))
    weight, group = (None if part is None else part.numpy() for part in (batch.weight, batch.group))
    return Block(file, row, batch.labels.numpy(), batch.dense.numpy(), tuple(columns), weight, group)


def one_a_row(block: Block, schema: Schema) -> Block:
    """`block` with plain columns for the features that have one id a row."""
    pairs = zip(schema.sparse, block.ids, strict=True)
    ids = tuple(Ids(column.values) if feature.one_hot else column for feature, column in pairs)
    return replace(block, ids=ids)


def numbers(block: Block, transforms: Transforms) -> Array:
    """The numbers as the model sees them: floats as they are, raw integers transformed (float32)."""
    return block.dense if block.dense.dtype.kind == "f" else transforms(block.dense.astype(np.float64))


def counts(block: Block, schema: Schema, transforms: Transforms) -> Array:
    """Raw integers (int64) that the schema's transforms take to just these numbers; integers as they are.

    Undoes `none` and `log1p_clip0` (a negative count that was cut to 0 comes back as 0). Raises ConfigError for other
    transforms, DataError naming a number that is the image of no integer.
    """
    if block.dense.dtype.kind != "f":
        return block.dense.astype(np.int64)
    raw = block.dense.astype(np.float64)
    for at, dense in enumerate(schema.dense):
        if dense.transform == "log1p_clip0":
            raw[:, at] = np.rint(np.expm1(raw[:, at]))
        elif dense.transform != "none":
            raise ConfigError(
                f"dense column {dense.name!r}: raw integers are wanted, and {dense.transform} is not undone"
            )
    wrong = (transforms(raw) != block.dense) | (raw != np.rint(raw))
    if wrong.any():
        row, at = (int(place) for place in np.argwhere(wrong)[0])
        where = block.where(row, schema.dense[at].name)
        raise DataError(f"{where}: {block.dense[row, at]:g} comes from no integer by {schema.dense[at].transform}")
    return raw.astype(np.int64)


def encoded(block: Block, schema: Schema, transforms: Transforms) -> Encoded:
    """The rows as prep would have encoded them."""
    columns = []
    for feature, ids in zip(schema.sparse, block.ids, strict=True):
        kind = id_dtype(schema.table(feature.table_name).rows or "dynamic")
        values, offsets = ids.values.astype(kind, copy=False), ids.offsets
        if offsets is None and not feature.one_hot:
            offsets = np.arange(block.rows + 1, dtype=np.int64)
        columns.append(IdColumn(values, None if feature.one_hot else offsets, 0))
    labels = np.empty(block.labels.shape, np.float32)
    for at, label in enumerate(schema.labels):
        labels[:, at] = exactly(block.labels[:, at], np.float32, block, label.name)
    return Encoded(block.rows, numbers(block, transforms), columns, labels, block.weight, block.group)


def widths(schema: Schema, wanted: str) -> list[int]:
    """Ids a row of each feature; raises ConfigError naming a feature whose bags differ in length."""
    for feature in schema.sparse:
        if feature.hotness is None:
            raise ConfigError(f"feature {feature.name!r} has bags of any length; {wanted} needs a fixed hotness")
    return [feature.hotness or 1 for feature in schema.sparse]


def plain_columns(schema: Schema, wanted: str) -> None:
    """Raise ConfigError where the schema has a weight or group column, which `wanted` has no place for."""
    for what, name in (("weight", schema.weight), ("group", schema.group)):
        if name:
            raise ConfigError(f"{wanted} has no place for the {what} column {name!r}")


def matrix(ids: Ids, width: int) -> Array:
    """The ids as [rows, width]; every row has as many."""
    return ids.values.reshape(-1, width)


def from_matrix(values: Array) -> Ids:
    """Ids from [rows, width]: plain for width 1."""
    rows, width = values.shape
    if width == 1:
        return Ids(np.ascontiguousarray(values[:, 0]))
    return Ids(np.ascontiguousarray(values).reshape(-1), np.arange(rows + 1, dtype=np.int64) * width)
