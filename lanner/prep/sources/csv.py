"""CSV files as named text columns with the line of every record.

The splitter is our own kernel: pyarrow's and Polars' readers bound memory too, but neither can tell the line of a
record once quoted line ends or empty lines came before it, and a bad row must be found again in the file.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lanner.errors import DataError
from lanner.kernels.delimited import FIELDS, QUOTES, Records, column, split
from lanner.prep.sources import BadRow, ReadOptions
from lanner.prep.sources.blocks import LONGEST_LINE, line_blocks


@dataclass(slots=True)
class TextRows:
    """Whole records of a file: `columns` of texts, the 1-based line of each row, and the rows already found bad."""

    columns: dict[str, pa.Array]
    lines: np.ndarray
    bad: list[BadRow]
    records: Records
    good: np.ndarray = field(repr=False)

    def text(self, row: int) -> str:
        """Row `row` as it stands in the file."""
        return self.records.raw(int(self.good[row])).decode(errors="replace")


def split_records(file: str, wanted: Sequence[str], options: ReadOptions) -> Iterator[tuple[Records, int]]:
    """Yield the records of `file` block by block, and the 1-based line each block starts at.

    Raises DataError where columns are missing or a quote is never closed, BrokenFileError like `line_blocks`.
    """
    delimiter, line, carry = options.delimiter or ",", 1, np.zeros(0, np.uint8)
    names: Sequence[str] | None = None if options.header else options.names
    if names:
        check_columns(file, wanted, list(dict.fromkeys(names)))
    for block in line_blocks(file, options.block_bytes, 0):
        text = np.concatenate([carry, block]) if len(carry) else block
        if names is None:
            found, skipped, lines = _header(file, text, delimiter, options.strip)
            text, line = text[skipped:], line + lines
            if not found:
                continue
            names = found
            check_columns(file, wanted, names)
        places = [at for name in wanted for at, other in enumerate(names) if other == name]
        records = split(text, len(names), places, delimiter, options.strip)
        yield records, line
        line += records.line_count
        carry = text[records.consumed :]
        if len(carry) > max(LONGEST_LINE, options.block_bytes):
            break
    if len(carry):
        raise DataError(f"{file}: line {line}: a quote is opened in this record and never closed")


def header_of(file: str, options: ReadOptions) -> list[str]:
    """The names in the first line of `file`; none when it is empty."""
    for block in line_blocks(file, options.block_bytes, 0):
        if found := _header(file, block, options.delimiter or ",", options.strip)[0]:
            return found
    return []


def check_columns(file: str, wanted: Sequence[str], present: Sequence[str]) -> None:
    """Raise DataError unless each wanted column is there exactly once."""
    if missing := [name for name in wanted if name not in present]:
        raise DataError(f"{file}: no column {', '.join(map(repr, missing))}; there are {', '.join(present)}")
    if doubled := [name for name in wanted if list(present).count(name) > 1]:
        raise DataError(f"{file}: the column {doubled[0]!r} is there {list(present).count(doubled[0])} times")


def text_rows(records: Records, line: int, wanted: Sequence[str], options: ReadOptions) -> TextRows:
    """The columns of the records that are well formed; the others as bad rows.

    A name that stands for several fields gives lists.
    """
    null = [text.encode() for text in options.null if text]
    counts = [1 if options.header else options.names.count(name) for name in wanted]
    slots = [number for number, count in enumerate(counts) for _ in range(count)]
    fields = [_texts(*column(records, slot, null)) for slot in range(len(slots))]
    status = records.status.copy()
    for number, array in zip(slots, fields, strict=True):
        for row in _not_utf8(array):
            status[row] = status[row] or -1 - number
    good, lines = np.flatnonzero(status == 0), records.lines + line
    bad = [_bad(records, int(row), int(lines[row]), int(status[row]), wanted) for row in np.flatnonzero(status)]
    if bad:
        fields = [array.take(pa.array(good)) for array in fields]
    texts = [array.cast(pa.string()) for array in fields]
    columns = {}
    for name, count in zip(wanted, counts, strict=True):
        columns[name] = _lists(texts[:count]) if count > 1 else texts[0]
        texts = texts[count:]
    return TextRows(columns, lines[good], bad, records, good)


def _lists(fields: list[pa.Array]) -> pa.Array:
    """Lists of the values that several columns have in a row."""
    rows, count = len(fields[0]), len(fields)
    places = np.arange(count * rows).reshape(count, rows).T.ravel()
    return pa.FixedSizeListArray.from_arrays(pa.concat_arrays(fields).take(pa.array(places)), count)


def _header(file: str, text: np.ndarray, delimiter: str, strip: bool) -> tuple[list[str], int, int]:
    """Column names of the first line that is not empty (they hold no line ends), and the bytes and lines up to its end.

    No names when all lines are empty. Raises DataError naming `file` when it cannot be a line of names.
    """
    at = lines = 0
    while at < len(text):
        end = at + int(np.argmax(text[at:] == ord("\n"))) + 1
        row = text[at:end].tobytes().decode(errors="replace").rstrip("\r\n")
        try:
            names = next(csv.reader([row], delimiter=delimiter), [])
        except csv.Error as error:
            raise DataError(f"{file}: line {lines + 1} is no line of column names: {error}") from error
        at, lines = end, lines + 1
        if names:
            return [name.strip() for name in names] if strip else names, at, lines
    return [], at, lines


def _texts(data: np.ndarray, offsets: np.ndarray) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _not_utf8(array: pa.Array) -> list[int]:
    """Rows that are not UTF-8; looked for one by one only where the column as a whole is not."""
    try:
        array.cast(pa.string())
    except pa.ArrowInvalid:
        return [row for row, text in enumerate(array.to_pylist()) if not _decodes(text)]
    return []


def _decodes(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _bad(records: Records, row: int, line: int, status: int, wanted: Sequence[str]) -> BadRow:
    raw = records.raw(row).decode(errors="replace")
    if status == FIELDS:
        return BadRow(line, "fields", f"{int(records.fields[row])} fields, expected {records.expected}", raw)
    if status == QUOTES:
        return BadRow(line, "quotes", "text after a closing quote, expected the delimiter or the line's end", raw)
    return BadRow(line, "encoding", f"column {wanted[-1 - status]!r} is not UTF-8", raw)
