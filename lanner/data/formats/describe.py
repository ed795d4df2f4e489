"""`describe`: what lies somewhere, how much of it, within which ranges, and what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lanner.data.formats.base import Array, Block, Ids, Source, text_of
from lanner.data.formats.checks import check
from lanner.data.formats.hugectr_keyset import KeysetFormat, KeysetOptions, read_keys
from lanner.data.formats.registry import open_source, told
from lanner.errors import DataError, SchemaError
from lanner.schema import Schema

ROWS = 1 << 20
"""Rows of each split that are read by default."""

_MARKED = 1 << 24  # tables up to that size have their ids marked one by one
_LISTED = 1 << 18  # distinct ids of larger tables are counted up to here


@dataclass(slots=True)
class Column:
    """A column as far as it was read. `distinct` is None where there are more ids than are counted."""

    name: str
    role: str
    table_rows: int | str | None = None
    minimum: float | int | None = None
    maximum: float | int | None = None
    mean: float | None = None
    distinct: int | None = None
    least_ids: int | None = None
    most_ids: int | None = None


@dataclass(slots=True)
class Description:
    """What was found. `read` counts the rows that columns and problems are taken from, `rows` all that there are."""

    path: str
    format: str
    title: str
    rows: dict[str, int | None] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    columns: list[Column] = field(default_factory=list)
    skipped: int = 0
    problems: list[str] = field(default_factory=list)


def describe(
    uri: str | os.PathLike[str],
    format: str | None = None,
    schema: Schema | str | os.PathLike[str] | None = None,
    options: Mapping[str, Any] | None = None,
    rows: int | None = ROWS,
) -> Description:
    """Describe what lies at `uri`; see `open_source` for the arguments.

    The first `rows` rows of each split are read and compared with the schema, all where that is None. What breaks the
    format or the schema is listed among the problems, the first of each split. Raises ConfigError where the format
    cannot be told or needs options.
    """
    place = text_of(uri)
    chosen, _ = told(place, format)
    if isinstance(chosen, KeysetFormat):
        return _keyset(place, chosen, options or {})
    try:
        source = open_source(place, format, schema, options)
    except (DataError, SchemaError) as error:
        return Description(place, chosen.name, chosen.title, problems=[str(error)])
    found = Description(place, chosen.name, chosen.title, source.rows, details=source.details())
    columns = _Columns(source.schema)
    for split in source.rows:
        found.read[split] = 0
        try:
            _read(source, split, rows, columns, found)
        except DataError as error:
            found.problems.append(str(error))
    found.columns, found.skipped = columns.summaries(), source.skipped
    found.problems += source.damaged
    return found


def _read(source: Source, split: str, most: int | None, columns: _Columns, found: Description) -> None:
    for block in source.blocks(split):
        check(block, source.schema)
        columns.add(block)
        found.read[split] += block.rows
        if most is not None and found.read[split] >= most:
            return
    if found.rows[split] is None:
        found.rows[split] = found.read[split]


def _keyset(uri: str, chosen: KeysetFormat, options: Mapping[str, Any]) -> Description:
    parsed = chosen.parse(options)
    assert isinstance(parsed, KeysetOptions)
    found = Description(uri, chosen.name, chosen.title, details={"keys": parsed.keys})
    try:
        keys = read_keys(uri, parsed.keys)
    except DataError as error:
        found.problems.append(str(error))
        return found
    low, high = (int(keys.min()), int(keys.max())) if len(keys) else (None, None)
    found.columns.append(Column("key", "key", minimum=low, maximum=high, distinct=len(keys)))
    return found


class _Columns:
    """Ranges and counts of every column of the blocks added."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._numbers = [Column(x.name, "label") for x in schema.labels] + [
            Column(x.name, "number") for x in schema.dense
        ]
        self._sums, self._rows = np.zeros(len(self._numbers)), 0
        self._features = [Column(x.name, "feature", schema.table(x.table_name).rows, distinct=0) for x in schema.sparse]
        self._seen: list[Array | None] = [_nothing_seen(column.table_rows) for column in self._features]

    def add(self, block: Block) -> None:
        if not block.rows:
            return
        values = [*block.labels.T, *block.dense.T]
        for at, (column, numbers) in enumerate(zip(self._numbers, values, strict=True)):
            _widen(column, numbers)
            self._sums[at] += float(numbers.sum(dtype=np.float64))
        self._rows += block.rows
        for at, ids in enumerate(block.ids):
            self._add_ids(at, ids)

    def _add_ids(self, at: int, ids: Ids) -> None:
        column, seen = self._features[at], self._seen[at]
        lengths = np.ones(1, np.int64) if ids.offsets is None else np.diff(ids.offsets)
        low, high = int(lengths.min()), int(lengths.max())
        column.least_ids = low if column.least_ids is None else min(column.least_ids, low)
        column.most_ids = high if column.most_ids is None else max(column.most_ids, high)
        _widen(column, ids.values)
        if seen is None:
            return
        if seen.dtype == np.bool_:
            seen[ids.values] = True
            return
        seen = np.union1d(seen, ids.values)
        self._seen[at] = seen if len(seen) <= _LISTED else None

    def summaries(self) -> list[Column]:
        for column, total in zip(self._numbers, self._sums.tolist(), strict=True):
            column.mean = total / self._rows if self._rows else None
        for column, seen in zip(self._features, self._seen, strict=True):
            marked = seen is not None and seen.dtype == np.bool_
            column.distinct = None if seen is None else int(np.count_nonzero(seen)) if marked else len(seen)
        return [*self._numbers, *self._features]


def _nothing_seen(rows: int | str | None) -> Array:
    return np.zeros(rows, np.bool_) if isinstance(rows, int) and rows <= _MARKED else np.empty(0, np.int64)


def _widen(column: Column, values: Array) -> None:
    if not len(values):
        return
    low, high = values.min().item(), values.max().item()
    column.minimum = low if column.minimum is None else min(column.minimum, low)
    column.maximum = high if column.maximum is None else max(column.maximum, high)
