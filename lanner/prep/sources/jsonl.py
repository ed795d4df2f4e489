"""JSON lines as named text columns with the line of every object.

Polars parses; numbers and booleans come as their texts (`true`), absent keys as null. Where it refuses a block the
lines at fault are looked for one by one, since it tells neither which they are nor what else is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from lanner.errors import DataError
from lanner.prep.sources import BadRow
from lanner.prep.sources.blocks import line_blocks

_BLANKS = np.isin(np.arange(256), list(b" \t\r\n"))
_NESTED = r"^[\[{]"


@dataclass(frozen=True, slots=True)
class JsonColumns:
    """The keys to read: of these, `lists` hold lists of values, all others one value."""

    names: tuple[str, ...]
    lists: frozenset[str]

    def frame(self, lines: bytes) -> pl.DataFrame:
        """The columns of `lines`, as texts; raises a Polars error for lines that are not all objects of such values."""
        kinds: dict[str, Any] = {name: pl.List(pl.String) if name in self.lists else pl.String for name in self.names}
        return pl.read_ndjson(BytesIO(lines), schema=kinds)


@dataclass(slots=True)
class JsonRows:
    """Objects of a block: `columns` of texts (or lists of them), the 1-based line and the text of each; bad rows."""

    columns: dict[str, pa.Array]
    lines: np.ndarray
    texts: list[bytes]
    bad: list[BadRow]


def json_blocks(file: str, columns: JsonColumns, block_bytes: int) -> Generator[tuple[np.ndarray, int], None, None]:
    """Blocks of whole lines and the number of lines before each.

    Raises DataError at the end of a file in which one of the keys is never there.
    """
    before, lines = {name: json.dumps(name, ensure_ascii=False).encode() for name in columns.names}, 0
    for block in line_blocks(file, block_bytes, 0):
        text = block.tobytes()
        before = {name: key for name, key in before.items() if key not in text}
        yield block, lines
        lines += int(np.count_nonzero(block == ord("\n")))
    if before and lines:
        raise DataError(f"{file}: no line has the key {', '.join(map(repr, before))}")


def json_rows(block: np.ndarray, line: int, columns: JsonColumns) -> JsonRows:
    """The objects of a block of whole lines that come after `line` lines; blank lines are left out."""
    ends = np.flatnonzero(block == ord("\n")) + 1
    starts = np.concatenate([[0], ends[:-1]])
    filled = np.flatnonzero(np.add.reduceat(~_BLANKS[block], starts)) if len(ends) else ends
    numbers = line + 1 + filled
    texts = [block[a:b].tobytes() for a, b in zip(starts[filled].tolist(), ends[filled].tolist(), strict=True)]
    frame, bad = _parsed(texts, numbers, columns)
    if bad:
        wrong = {row.line for row in bad}
        kept = [at for at, number in enumerate(numbers.tolist()) if number not in wrong]
        numbers, texts = numbers[kept], [texts[at] for at in kept]
    found = {name: frame[name].to_arrow() for name in columns.names}
    return JsonRows(found, numbers, texts, bad)


def _parsed(texts: list[bytes], numbers: np.ndarray, columns: JsonColumns) -> tuple[pl.DataFrame, list[BadRow]]:
    """A row for each good line, in order, and the others."""
    frame = _whole_frame(texts, columns)
    suspects = np.arange(len(texts)) if frame is None else _nested(frame, columns)
    bad = [row for at in suspects.tolist() if (row := _problem(texts[at], int(numbers[at]), columns)) is not None]
    if not bad and frame is not None:
        return frame, []
    wrong = {row.line for row in bad}
    good = [at for at, number in enumerate(numbers.tolist()) if number not in wrong]
    frame = _whole_frame([texts[at] for at in good], columns)
    if frame is None:  # Python's reader takes more than Polars' does
        refused = [at for at in good if _whole_frame([texts[at]], columns) is None]
        bad += [BadRow(int(numbers[at]), "json", "not JSON that Polars reads", _shown(texts[at])) for at in refused]
        frame = columns.frame(b"".join(texts[at] for at in good if at not in set(refused)))
    return frame, sorted(bad, key=lambda row: row.line)


def _whole_frame(texts: list[bytes], columns: JsonColumns) -> pl.DataFrame | None:
    """A row a line; None where Polars refuses one or finds another number of objects."""
    try:
        frame = columns.frame(b"".join(texts))
    except (pl.exceptions.PolarsError, UnicodeError):
        return None
    return frame if frame.height == len(texts) else None


def _nested(frame: pl.DataFrame, columns: JsonColumns) -> np.ndarray:
    """Rows with a text that may be an object or a list where one value is expected (int64)."""
    found = np.zeros(frame.height, np.bool_)
    for name in columns.names:
        if name in columns.lists:
            found |= bool(frame[name].explode().str.contains(_NESTED).any())
        else:
            found |= frame[name].str.contains(_NESTED).fill_null(False).to_numpy()
    return np.flatnonzero(found)


def _problem(text: bytes, line: int, columns: JsonColumns) -> BadRow | None:
    shown = _shown(text)
    try:
        values = json.loads(text, parse_constant=_no_constant)
    except UnicodeDecodeError:
        return BadRow(line, "encoding", "the line is not UTF-8", shown)
    except (ValueError, RecursionError) as error:
        return BadRow(line, "json", f"not JSON: {error}", shown)
    if not isinstance(values, dict):
        return BadRow(line, "json", f"a {type(values).__name__}, expected an object with the columns as keys", shown)
    for name in columns.names:
        value = values.get(name)
        if name not in columns.lists:
            good, wanted = not isinstance(value, dict | list), "a single value"
        else:
            single = isinstance(value, list) and not any(isinstance(part, dict | list) for part in value)
            good, wanted = value is None or single, "a list of single values"
        if not good:
            return BadRow(line, "type", f"column {name!r}: {value!r} is not {wanted}", shown)
    return None


def _shown(text: bytes) -> str:
    return text.decode(errors="replace").rstrip("\r\n")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
