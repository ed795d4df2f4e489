"""A first schema for a file nobody has described yet, to be read and changed by people.

Types, label, encoders and separators are guessed from the first rows; each guess stands beside what it was made from.
"""

from __future__ import annotations

import csv
import json
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from lanner import storage
from lanner.errors import DataError
from lanner.prep.guess import Column, guess_label
from lanner.prep.sources import ReadOptions
from lanner.prep.sources.blocks import BrokenFileError, line_blocks
from lanner.prep.sources.joins import kind_of

_ROWS, _BYTES = 100_000, 16 << 20
_DELIMITERS = ",\t;|"
_NULLS = ("?", "NA", "N/A", "NULL", "null", "\\N", "None", "nan", "NaN")


@dataclass(slots=True)
class _Table:
    """The first rows: cells are texts, None where missing, or lists; `options` tell `lanner prep` how to read them."""

    names: list[str]
    rows: list[list[object]]
    options: list[str] = field(default_factory=list)


def infer(file: str, options: ReadOptions | None = None) -> str:
    """A schema as YAML with comments, the first of which is the command that prepares `file` by it.

    The name tells Parquet (`.parquet`) and JSON lines (`.json`, `.jsonl`, `.ndjson`) from CSV. `options` are what is
    known already of a CSV file: its delimiter, names, or that it has no header. Raises DataError where there are no
    rows.
    """
    known, kind = options or ReadOptions(), kind_of(file)
    source = "csv" if kind == "tsv" else kind
    table = {"parquet": _parquet, "json": _json, "csv": _csv}[source](file, known)
    if not table.rows:
        raise DataError(f"{file}: no rows to infer a schema from")
    columns = [Column(name, [row[at] for row in table.rows]) for at, name in enumerate(table.names)]
    label = guess_label(columns)
    words = ["lanner", "prep", "--source", source, "--schema", "schema.yaml", *table.options, file, "--out", "dataset"]
    lines = [
        f"# Guessed from the first {len(table.rows):,} rows of {file.rpartition('/')[2]}: read it before you use it.",
        f"#   {shlex.join(words)}",
        "version: 1",
        *_section("labels", [column.as_label() for column in columns if column is label]),
        *_section("dense", [column.as_number() for column in columns if column is not label and column.is_number]),
        *_section("sparse", [column.as_category() for column in columns if column is not label and column.is_category]),
    ]
    left = [column for column in columns if column is not label and not (column.is_number or column.is_category)]
    if left:
        lines += ["# Left out:", *(f"#   {column.shown}: {column.left_out} ({column.seen})" for column in left)]
    return "\n".join(lines) + "\n"


def _section(name: str, entries: list[list[str]]) -> Iterator[str]:
    if entries:
        yield f"{name}:"
    for entry in entries:
        yield from entry


def _parquet(file: str, options: ReadOptions) -> _Table:
    with storage.open_file(file) as source:
        parquet = pq.ParquetFile(source)
        batch = next(parquet.iter_batches(batch_size=_ROWS), None)
        names = parquet.schema_arrow.names
    return _Table(names, [] if batch is None else [list(row) for row in zip(*map(_cells, batch.columns), strict=True)])


def _cells(array: pa.Array) -> list[object]:
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    return [value if isinstance(value, list) or value is None else str(value) for value in array.to_pylist()]


def _json(file: str, options: ReadOptions) -> _Table:
    try:
        objects = [json.loads(line) for line in islice(_lines(file), _ROWS)]
    except ValueError as error:
        raise DataError(f"{file}: not JSON lines: {error}") from error
    names = list(dict.fromkeys(name for found in objects for name in found))
    return _Table(names, [[_json_cell(found.get(name)) for name in names] for found in objects])


def _json_cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, list) or value is None else str(value)


def _csv(file: str, options: ReadOptions) -> _Table:
    head = list(islice(_lines(file), _ROWS + 1))
    delimiter = options.delimiter or _delimiter(head[:100])
    rows = list(csv.reader(head, delimiter=delimiter))
    names = [name.strip() for name in rows[0]] if options.header and rows else list(options.names)
    rows = rows[1:] if options.header else rows
    names = names or [f"c{at}" for at in range(max(map(len, rows), default=0))]
    rows = [row for row in rows if len(row) == len(names)]
    strip = options.strip or sum(cell != cell.strip() for row in rows for cell in row) * 3 > len(rows) * len(names)
    null = [text for text in _NULLS if any(cell.strip() == text for row in rows for cell in row)]
    found = [] if options.header else ["--no-header", "--names", ",".join(names)]
    found += [] if delimiter == "," else ["--delimiter", "\\t" if delimiter == "\t" else delimiter]
    found += ["--strip"] if strip else []
    found += [word for text in null for word in ("--null", text)]
    cells: list[list[object]] = [[_cell(cell, strip, null) for cell in row] for row in rows]
    return _Table(names, cells, found)


def _cell(text: str, strip: bool, null: list[str]) -> str | None:
    text = text.strip() if strip else text
    return None if not text or text in null else text


def _delimiter(lines: list[str]) -> str:
    """The one that all lines have most often alike."""
    counts = {one: Counter(line.count(one) for line in lines) for one in _DELIMITERS}
    return max(_DELIMITERS, key=lambda one: max((n * (each > 0) for each, n in counts[one].items()), default=0))


def _lines(file: str) -> Iterator[str]:
    """The first whole lines that are not empty."""
    try:
        for block in line_blocks(file, _BYTES, 0):
            for line in block.tobytes().decode(errors="replace").splitlines():
                if line.strip():
                    yield line
            return
    except BrokenFileError as broken:
        raise DataError(f"{file}: {broken}") from broken
