"""CSV, Parquet and JSON lines files with any columns, read by a schema."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lanner import storage
from lanner.errors import ConfigError, DataError
from lanner.kernels.delimited import Records
from lanner.prep.assemble import Problem, assemble
from lanner.prep.chunk import RawChunk
from lanner.prep.overlap import map_ordered
from lanner.prep.sources import BadRow, OnBadRow, ReadOptions
from lanner.prep.sources.blocks import BrokenFileError
from lanner.prep.sources.csv import check_columns, split_records, text_rows
from lanner.prep.sources.joins import side_tables
from lanner.prep.sources.jsonl import JsonColumns, json_blocks, json_rows
from lanner.schema import Schema

_READ_BUFFER = 1 << 20
_TEXT_SHOWN = 500
Part: TypeAlias = tuple[RawChunk, list[BadRow]]


class TabularSource:
    """Reads files of `kind` csv, parquet or json (an object a line).

    Parquet files are read by batches of rows, page by page, however large a row group is.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def schema(self, options: ReadOptions) -> Schema | None:
        """None: any column can be anything."""
        return None

    def check(self, schema: Schema, options: ReadOptions) -> None:
        """Raise ConfigError where the options do not fit: delimiter, names, columns that `names` does not have."""
        if self._kind != "csv":
            return
        delimiter = "," if options.delimiter is None else options.delimiter
        if len(delimiter.encode()) != 1 or delimiter in '"\r\n':
            raise ConfigError(f"delimiter {delimiter!r}: expected one byte, no quote and no line end")
        if options.header and options.names:
            raise ConfigError(
                "column names are given, but the first line is to be read as the header: say header: false"
            )
        if not options.header:
            if not options.names:
                raise ConfigError("a CSV file without a header needs the names of its columns")
            joined = _Columns(schema, options)
            if missing := [name for name in joined.read if name not in options.names]:
                raise ConfigError(f"no column {', '.join(map(repr, missing))} among the names given")

    def read(self, file: str, schema: Schema, options: ReadOptions, on_bad_row: OnBadRow) -> Iterator[RawChunk]:
        """See `Source.read`."""
        parts = _PARTS[self._kind](file, _Columns(schema, options), options)
        rows = 0
        try:
            with closing(parts):
                for chunk, bad in parts:
                    for row in bad:
                        on_bad_row(row)
                    rows += chunk.rows
                    yield chunk
        except (BrokenFileError, pa.ArrowException) as broken:
            raise DataError(f"{file}: {broken}; {rows} rows could be read before the break") from broken


class _Columns:
    """The columns a file is read for, those that side tables add, and what becomes of them."""

    def __init__(self, schema: Schema, options: ReadOptions) -> None:
        self._schema, self._time = schema, options.time
        wanted = dict.fromkeys((*schema.raw_columns, *([options.time] if options.time else [])))
        self.lists = frozenset(f.source for f in schema.sparse if not f.one_hot and f.separator is None)
        self._sides = side_tables(options.join, tuple(wanted), self.lists)
        added = {name for side in self._sides for name in side.columns}
        keys = dict.fromkeys(side.key for side in self._sides)
        self.read = [*(name for name in wanted if name not in added), *(key for key in keys if key not in wanted)]

    def assembled(self, where: str, columns: dict[str, pa.Array], rows: int) -> tuple[RawChunk, list[Problem]]:
        """See `assemble`; raises DataError naming `where`."""
        unmatched = np.zeros(rows, np.int8)
        for side in self._sides:
            found, absent = side.look_up(columns[side.key])
            columns = {**columns, **found}
            unmatched += absent
        try:
            chunk, problems = assemble(columns, rows, self._schema, self._time)
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
        if self._sides:
            chunk.unmatched = np.delete(unmatched, [problem.row for problem in problems])
        return chunk, problems


def _csv_parts(file: str, columns: _Columns, options: ReadOptions) -> Generator[Part, None, None]:
    parse = partial(_csv_part, file=file, columns=columns, options=options)
    yield from map_ordered(parse, split_records(file, columns.read, options))


def _csv_part(block: tuple[Records, int], file: str, columns: _Columns, options: ReadOptions) -> Part:
    rows = text_rows(*block, columns.read, options)
    chunk, problems = columns.assembled(file, rows.columns, len(rows.lines))
    bad = [BadRow(int(rows.lines[p.row]), p.reason, p.message, rows.text(p.row)) for p in problems]
    return chunk, sorted([*rows.bad, *bad], key=lambda row: row.line)


def _json_parts(file: str, columns: _Columns, options: ReadOptions) -> Generator[Part, None, None]:
    keys = JsonColumns(tuple(columns.read), columns.lists & frozenset(columns.read))
    parse = partial(_json_part, file=file, keys=keys, columns=columns)
    yield from map_ordered(parse, json_blocks(file, keys, options.block_bytes))


def _json_part(block: tuple[np.ndarray, int], file: str, keys: JsonColumns, columns: _Columns) -> Part:
    rows = json_rows(*block, keys)
    chunk, problems = columns.assembled(file, rows.columns, len(rows.lines))
    shown = [rows.texts[p.row].decode(errors="replace").rstrip("\r\n")[:_TEXT_SHOWN] for p in problems]
    bad = [BadRow(int(rows.lines[p.row]), p.reason, p.message, s) for p, s in zip(problems, shown, strict=True)]
    return chunk, sorted([*rows.bad, *bad], key=lambda row: row.line)


def _parquet_parts(file: str, columns: _Columns, options: ReadOptions) -> Generator[Part, None, None]:
    parse = partial(_parquet_part, file=file, columns=columns)
    yield from map_ordered(parse, _batches(file, columns.read, options))


def _batches(file: str, wanted: list[str], options: ReadOptions) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Batches of about `block_bytes` and the 1-based row each starts at."""
    first = 1
    with storage.open_file(file) as raw:
        parquet = pq.ParquetFile(raw, buffer_size=_READ_BUFFER, pre_buffer=False)
        check_columns(file, wanted, parquet.schema_arrow.names)
        if not wanted or not parquet.metadata.num_rows:
            return
        rows = max(options.block_bytes // _row_bytes(parquet.metadata, wanted), 1)
        for batch in parquet.iter_batches(batch_size=rows, columns=wanted, use_threads=False):
            yield batch, first
            first += batch.num_rows


def _row_bytes(metadata: pq.FileMetaData, wanted: list[str]) -> int:
    """Bytes of one decoded row of the wanted columns, estimated: 8 a column, or more where the file says so."""
    size: int = 0
    for group in range(metadata.num_row_groups):
        for at in range(metadata.num_columns):
            piece = metadata.row_group(group).column(at)
            if piece.path_in_schema.split(".")[0] in wanted:
                size += piece.total_uncompressed_size
    return max(size // int(metadata.num_rows), 8 * len(wanted))


def _parquet_part(part: tuple[pa.RecordBatch, int], file: str, columns: _Columns) -> Part:
    batch, first = part
    found = {name: batch.column(name) for name in columns.read}
    chunk, problems = columns.assembled(f"{file}, rows from {first} on", found, batch.num_rows)
    return chunk, [BadRow(first + p.row, p.reason, p.message, _shown(batch, p.row)) for p in problems]


def _shown(batch: pa.RecordBatch, row: int) -> str:
    return repr(batch.slice(row, 1).to_pylist()[0])[:_TEXT_SHOWN]


_PARTS = {"csv": _csv_parts, "parquet": _parquet_parts, "json": _json_parts}
