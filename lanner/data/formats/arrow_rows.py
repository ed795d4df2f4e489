"""Blocks from and to Arrow record batches whose columns are found by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lanner.data.formats.base import Array, Block, Ids
from lanner.data.formats.checks import exactly
from lanner.data.formats.rows import numbers
from lanner.errors import DataError
from lanner.prep.transforms import Transforms
from lanner.schema import Schema


@dataclass(frozen=True, slots=True)
class Plan:
    """Which columns of a file hold what. `dense` gives each column of numbers with its width, 0 for a plain one."""

    labels: tuple[str, ...]
    dense: tuple[tuple[str, int], ...]
    sparse: tuple[str, ...]
    weight: str | None = None
    group: str | None = None

    @property
    def columns(self) -> list[str]:
        dense = (name for name, _ in self.dense)
        return [name for name in (*self.labels, *dense, *self.sparse, self.weight, self.group) if name]

    @property
    def numbers(self) -> list[str]:
        """A name for each number: those of a list column are counted."""
        return [
            name if not width else f"{name}_{at}" for name, width in self.dense for at in range(max(width, 1))
        ]  # fmt: skip

    @staticmethod
    def of(schema: Schema, file: str, columns: Sequence[str], wide: dict[str, int]) -> Plan:
        """Where the file with these columns, list columns of numbers among them being `wide`, holds the schema's.

        Numbers may lie in columns of their own, or in lists. Raises DataError naming a column that is missing.
        """
        dense: list[tuple[str, int]] = []
        names = [number.name for number in schema.dense]
        while names:
            lists = [c for c, width in wide.items() if names[:width] == [f"{c}_{at}" for at in range(width)]]
            if names[0] in columns:
                dense.append((names.pop(0), 0))
            elif lists or ("dense" in wide and wide["dense"] == len(names)):
                column = lists[0] if lists else "dense"
                dense.append((column, wide[column]))
                del names[: wide[column]]
            else:
                raise DataError(f"{file}: column {names[0]!r} is missing; the file has {', '.join(columns)}")
        labels, sparse = (tuple(part.name for part in parts) for parts in (schema.labels, schema.sparse))
        plan = Plan(labels, tuple(dense), sparse, schema.weight, schema.group)
        for column in plan.columns:
            if column not in columns:
                raise DataError(f"{file}: column {column!r} is missing; the file has {', '.join(columns)}")
        return plan


def is_numbers(kind: Any) -> bool:
    """Whether an Arrow type is a list of floats."""
    return is_list(kind) and pa.types.is_floating(kind.value_type)


def is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def to_block(batch: pa.RecordBatch, plan: Plan, file: str, row: int) -> Block:
    """The rows of a record batch. Raises DataError naming file, row and column of a null or a type that is none."""
    read = _Reader(batch, file, row)
    labels = [read.scalars(name) for name in plan.labels]
    parts = [read.scalars(name)[:, None] if not width else read.lists_of(name, width) for name, width in plan.dense]
    ids = tuple(read.ids(name) for name in plan.sparse)
    weight = read.scalars(plan.weight).astype(np.float32) if plan.weight else None
    group = read.scalars(plan.group).astype(np.int64) if plan.group else None
    return Block(file, row, _side_by_side(labels, batch.num_rows), _joined(parts, batch.num_rows), ids, weight, group)


def _side_by_side(columns: list[Array], rows: int) -> Array:
    return np.stack(columns, axis=1) if columns else np.empty((rows, 0), np.float32)


def _joined(parts: list[Array], rows: int) -> Array:
    return np.concatenate(parts, axis=1) if parts else np.empty((rows, 0), np.float32)


class _Reader:
    def __init__(self, batch: pa.RecordBatch, file: str, row: int) -> None:
        self._batch, self._file, self._row = batch, file, row

    def _column(self, name: str) -> pa.Array:
        array = self._batch.column(self._batch.schema.get_field_index(name))
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if array.null_count:
            self._refuse(int(np.flatnonzero(array.is_null().to_numpy(False))[0]), name, "null, expected a value")
        return array

    def _refuse(self, row: int, name: str, why: str) -> None:
        raise DataError(f"{self._file}: row {self._row + row}, column {name!r}: {why}")

    def _flat(self, array: pa.Array, name: str, wanted: str) -> Array:
        kind = array.type
        if pa.types.is_boolean(kind):
            array = array.cast(pa.uint8())
            kind = array.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise DataError(
                f"{self._file}: column {name!r} has type {kind}, expected {wanted}; raw values are for `lanner prep`"
            )
        values: Array = array.to_numpy(zero_copy_only=False)
        return values

    def scalars(self, name: str) -> Array:
        return self._flat(self._column(name), name, "numbers")

    def _lists(self, name: str, wanted: str) -> tuple[Array, Array]:
        """The elements of a list column, and int64 offsets."""
        array = self._column(name)
        if pa.types.is_fixed_size_list(array.type):
            flat, size = array.flatten(), array.type.list_size
            offsets = np.arange(len(array) + 1, dtype=np.int64) * size
        else:
            offsets = array.offsets.to_numpy().astype(np.int64)
            flat = array.values[int(offsets[0]) : int(offsets[-1])]
            offsets = offsets - offsets[0]
        if flat.null_count:
            at = int(np.flatnonzero(flat.is_null().to_numpy(False))[0])
            row = int(np.searchsorted(offsets, at, side="right")) - 1
            self._refuse(row, name, "a null in the list, expected values")
        return self._flat(flat, name, wanted), offsets

    def lists_of(self, name: str, width: int) -> Array:
        values, offsets = self._lists(name, "lists of numbers")
        wrong = np.flatnonzero(np.diff(offsets) != width)
        if len(wrong):
            self._refuse(int(wrong[0]), name, f"{np.diff(offsets)[wrong[0]]} numbers, expected {width}")
        return values.reshape(-1, width)

    def ids(self, name: str) -> Ids:
        column = self._batch.column(self._batch.schema.get_field_index(name))
        values, offsets = self._lists(name, "ids") if is_list(column.type) else (self.scalars(name), None)
        if values.dtype.kind == "f" or pa.types.is_boolean(column.type):
            kind = column.type
            raise DataError(f"{self._file}: column {name!r} has type {kind}, expected integers or lists of them")
        if values.dtype == np.uint64:
            over = np.flatnonzero(values > np.iinfo(np.int64).max)
            if len(over):
                at = int(over[0])
                row = at if offsets is None else int(np.searchsorted(offsets, at, side="right")) - 1
                self._refuse(row, name, f"id {values[at]} is beyond 64 bits with a sign")
            values = values.astype(np.int64)
        return Ids(values, offsets)


def to_arrow(block: Block, schema: Schema, transforms: Transforms, labels: Any, ids: Any) -> pa.RecordBatch:
    """A column for each label, number and feature, by name, and those of weight and group.

    `labels` is the NumPy type of binary labels; the others, and numbers, are float32. `ids` gives the type of a
    feature's ids by its table's rows.
    """
    columns: dict[str, pa.Array] = {}
    for at, label in enumerate(schema.labels):
        kind = labels if label.task == "binary" and not label.soft else np.float32
        columns[label.name] = pa.array(exactly(block.labels[:, at], kind, block, label.name))
    dense = numbers(block, transforms)
    for at, number in enumerate(schema.dense):
        columns[number.name] = pa.array(np.ascontiguousarray(dense[:, at], np.float32))
    for feature, column in zip(schema.sparse, block.ids, strict=True):
        kind = ids(schema.table(feature.table_name).rows or "dynamic")
        values = pa.array(np.ascontiguousarray(column.values.astype(kind, copy=False)))
        if not feature.one_hot:
            ends = np.arange(block.rows + 1) if column.offsets is None else column.offsets
            values = pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), values)
        columns[feature.name] = values
    for name, extra in ((schema.weight, block.weight), (schema.group, block.group)):
        if name and extra is not None:
            columns[name] = pa.array(extra)
    return pa.record_batch(columns)
