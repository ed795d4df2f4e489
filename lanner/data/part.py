"""One file of a split: memory-mapped Arrow IPC, checked and turned into the addresses of its columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lanner.errors import DataError
from lanner.kernels.gather import KINDS
from lanner.schema import Schema


@dataclass(frozen=True, slots=True)
class ColumnType:
    """How a column lies in memory: the element type, elements a row (dense), bytes of a list's offsets (or 0)."""

    element: np.dtype[Any]
    length: int = 1
    offsets: int = 0

    def __str__(self) -> str:
        if self.offsets:
            return f"list<{self.element}>"
        return f"{self.element}[{self.length}]" if self.length > 1 else str(self.element)


@dataclass(frozen=True, slots=True)
class Part:
    """A file's record batches ("segments", S of them) for C columns in the order of `columns(schema)`.

    `rows` [S]; `values` [S, C] addresses of the elements; `ends` and `counts` [S, C] addresses of list offsets and
    numbers of list elements (0 where the column is no list). `owner` keeps the mapped memory alive.
    """

    name: str
    rows: NDArray[np.int64]
    values: NDArray[np.int64]
    ends: NDArray[np.int64]
    counts: NDArray[np.int64]
    types: tuple[ColumnType, ...]
    owner: Any


def columns(schema: Schema) -> tuple[str, ...]:
    """The columns of a dataset file: labels, `dense` where there are numbers, sparse features, weight, group."""
    dense = ("dense",) if schema.dense else ()
    extra = tuple(name for name in (schema.weight, schema.group) if name)
    return (*(x.name for x in schema.labels), *dense, *(x.name for x in schema.sparse), *extra)


def open_part(path: str, name: str, schema: Schema) -> Part:
    """Map the local Arrow IPC file `path`, called `name` in messages.

    Raises DataError naming the file when it is damaged, lacks a column, holds nulls or a type that cannot be read.
    """
    owner, batches, found = _open(path, name)
    wanted = columns(schema)
    if missing := [column for column in wanted if column not in found]:
        raise DataError(f"{name}: column {missing[0]!r} is missing; the file has {', '.join(found)}")
    types = tuple(_column_type(name, column, found[column], schema) for column in wanted)
    shape = len(batches), len(wanted)
    part = Part(
        name=name,
        rows=np.array([batch.num_rows for batch in batches], np.int64),
        values=np.zeros(shape, np.int64),
        ends=np.zeros(shape, np.int64),
        counts=np.zeros(shape, np.int64),
        types=types,
        owner=(owner, batches),
    )
    for segment, batch in enumerate(batches):
        for index, column in enumerate(wanted):
            _place(part, segment, index, batch.column(column), column)
    return part


def _open(path: str, name: str) -> tuple[Any, list[Any], dict[str, Any]]:
    """The mapped file, its record batches, and its Arrow types by column."""
    try:
        owner = pa.memory_map(path)
        reader = pa.ipc.open_file(owner)
        batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        for batch in batches:
            batch.validate()
        found = {field.name: field.type for field in reader.schema}
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{name}: damaged Arrow file: {error}") from error
    if len(found) < len(reader.schema):
        raise DataError(f"{name}: a column name occurs twice among {', '.join(reader.schema.names)}")
    return owner, batches, found


def _place(part: Part, segment: int, index: int, array: Any, column: str) -> None:
    """Enter the addresses of one column of one record batch."""
    kind = part.types[index]
    if kind.offsets:
        part.ends[segment, index] = _address(array.buffers()[1], array.offset * kind.offsets)
        elements = array.values
        part.counts[segment, index] = len(elements)
    else:
        elements = array.flatten() if pa.types.is_fixed_size_list(array.type) else array
    if array.null_count or elements.null_count:
        raise DataError(f"{part.name}: column {column!r} holds nulls, which prep replaces; expected none")
    part.values[segment, index] = _address(elements.buffers()[1], elements.offset * kind.element.itemsize)


def _address(buffer: Any, offset: int) -> int:
    return 0 if buffer is None else int(buffer.address) + offset


def _column_type(name: str, column: str, kind: Any, schema: Schema) -> ColumnType:
    """Check an Arrow type against the column's role."""
    element, length, offsets = kind, 1, 0
    if pa.types.is_fixed_size_list(kind):
        element, length = kind.value_type, kind.list_size
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element, offsets = kind.value_type, 4 if pa.types.is_list(kind) else 8
    expected = _expected(column, schema)
    try:
        found = ColumnType(np.dtype(element.to_pandas_dtype()), length, offsets)
    except (NotImplementedError, TypeError):
        raise DataError(f"{name}: column {column!r} has type {kind}; expected {expected}") from None
    if not _fits(found, column, schema):
        raise DataError(f"{name}: column {column!r} has type {kind}; expected {expected}")
    return found


def _expected(column: str, schema: Schema) -> str:
    if column == "dense" and schema.dense:
        return f"fixed_size_list<float32 or float16>[{len(schema.dense)}]"
    feature = next((feature for feature in schema.sparse if feature.name == column), None)
    if feature is None:
        return "a number"
    return "an integer of 8 to 64 bits" if feature.one_hot else "a list of integers"


def _fits(found: ColumnType, column: str, schema: Schema) -> bool:
    if column == "dense" and schema.dense:
        return found.length == len(schema.dense) and not found.offsets and found.element in (np.float32, np.float16)
    feature = next((feature for feature in schema.sparse if feature.name == column), None)
    if feature is None:
        return found.length == 1 and not found.offsets and found.element in KINDS
    return (
        found.length == 1
        and found.element in KINDS
        and found.element.kind in "iu"
        and bool(found.offsets) != feature.one_hot
    )
