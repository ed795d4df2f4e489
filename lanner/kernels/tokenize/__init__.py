"""Criteo-format text to numbers and 32-bit keys, validated in the same loop.

A line is `[label] number ... number hex ... hex`, parted by one delimiter byte, ended by LF or CRLF. Numbers are
64-bit integers, hex fields have one to eight digits, an empty number or hex field is a missing value. Everything
else is an error of that row, reported by line.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanner.errors import ConfigError
from lanner.kernels.tokenize.codes import DIGIT, FIELDS, HEX_DIGIT, HEX_LENGTH, LABEL, OVERFLOW

SPARE = 8
"""Bytes that must follow the last newline of a text given to `tokenize`; their values do not matter."""

_TAKEN = frozenset(b"0123456789abcdefABCDEF-.\r\n")
_REASONS = {
    FIELDS: "fields", LABEL: "label", DIGIT: "integer", OVERFLOW: "range", HEX_DIGIT: "hex", HEX_LENGTH: "hex"
}  # fmt: skip
_EXPECTED = {
    LABEL: "0 or 1",
    DIGIT: "an integer or nothing",
    OVERFLOW: "an integer of 64 bits",
    HEX_DIGIT: "1 to 8 hexadecimal digits or nothing",
    HEX_LENGTH: "1 to 8 hexadecimal digits or nothing",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Fields of a line: a label or none, `numeric` integers, `categorical` hex keys; `soft` allows labels in [0, 1].

    Raises ConfigError for a delimiter that is not one byte or can be part of a value.
    """

    numeric: int = 13
    categorical: int = 26
    labelled: bool = True
    soft: bool = False
    delimiter: str = "\t"

    def __post_init__(self) -> None:
        raw = self.delimiter.encode()
        if len(raw) != 1 or raw[0] in _TAKEN:
            raise ConfigError(f"delimiter {self.delimiter!r}: expected one byte that cannot be part of a value")
        if min(self.numeric, self.categorical) < 0 or self.numeric + self.categorical == 0:
            raise ConfigError(f"{self.numeric} numeric and {self.categorical} categorical columns: expected at least 1")

    @property
    def fields(self) -> int:
        """Number of fields of a line."""
        return self.labelled + self.numeric + self.categorical

    def column(self, field: int) -> str:
        """Name of field `field` (from 0): label, I1.., C1.. ."""
        field -= self.labelled
        if field < 0:
            return "label"
        return f"I{field + 1}" if field < self.numeric else f"C{field - self.numeric + 1}"


@dataclass(frozen=True, slots=True)
class LineError:
    """A line that is no row: its number within the text (from 0), code, field at fault (from 0), fields seen, bytes."""

    line: int
    code: int
    field: int
    fields: int
    text: bytes

    @property
    def reason(self) -> str:
        """One word to count by: fields, label, integer, range or hex."""
        return _REASONS[self.code]

    def message(self, layout: Layout) -> str:
        """What was wrong, for people: column, value seen and what was expected."""
        if self.code == FIELDS:
            hint = " (is the delimiter right?)" if self.fields == 1 else ""
            return f"expected {layout.fields} fields, got {self.fields}{hint}"
        value = self.text.rstrip(b"\r").split(layout.delimiter.encode())[self.field].decode(errors="replace")
        expected = "a number from 0 to 1" if self.code == LABEL and layout.soft else _EXPECTED[self.code]
        return f"{layout.column(self.field)} is {value[:80]!r}, expected {expected}"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The rows of a text, in order, and its errors.

    `labels` float32 [rows] (unset where the layout has none); `numbers` [rows, numeric] with the fill value where
    `number_missing` (bool); `keys` uint32 [categorical, rows], 0 where `key_missing` (bool). `lines` counts all
    lines, blank ones (which are skipped) and bad ones included.
    """

    rows: int
    lines: int
    labels: np.ndarray
    numbers: np.ndarray
    number_missing: np.ndarray
    keys: np.ndarray
    key_missing: np.ndarray
    errors: list[LineError]


def tokenize(text: np.ndarray, layout: Layout, as_float: bool = False) -> Tokens:
    """Tokenise whole lines on the calling thread, without the GIL.

    `text` is uint8 and ends in a newline followed by `SPARE` bytes (see `padded`). Numbers come as int64 with 0 for
    missing, or `as_float` as float64 with NaN for missing (exact up to 2**53).
    """
    from lanner.kernels.tokenize import cpu

    if text.dtype != np.uint8 or text.size < SPARE or (text.size > SPARE and text[-SPARE - 1] != ord("\n")):
        raise ValueError(f"tokenize: expected uint8 text that ends in a newline and {SPARE} spare bytes")
    capacity = cpu.count_lines(text[:-SPARE])
    labels = np.empty(capacity if layout.labelled else 0, np.float32)
    numbers = np.empty((capacity, layout.numeric), np.float64 if as_float else np.int64)
    number_missing = np.empty((capacity, layout.numeric), np.bool_)
    keys = np.empty((layout.categorical, capacity), np.uint32)
    key_missing = np.empty((layout.categorical, capacity), np.bool_)
    errors = np.empty((capacity, 6), np.int64)
    fill = np.float64("nan") if as_float else np.int64(0)
    rows, lines, bad = cpu.tokenize(
        text, np.uint8(ord(layout.delimiter)), layout.labelled, layout.soft, fill, labels, numbers, number_missing,
        keys, key_missing, errors,
    )  # fmt: skip
    return Tokens(
        rows, lines, labels[:rows], numbers[:rows], number_missing[:rows], keys[:, :rows], key_missing[:, :rows],
        [_line_error(text, entry) for entry in errors[:bad].tolist()],
    )  # fmt: skip


def padded(text: bytes) -> np.ndarray:
    """`text` as `tokenize` takes it: with a final newline and the spare bytes."""
    ending = b"" if not text or text.endswith(b"\n") else b"\n"
    return np.frombuffer(b"".join((text, ending, bytes(SPARE))), np.uint8)


def _line_error(text: np.ndarray, entry: list[int]) -> LineError:
    line, code, field, fields, begin, end = entry
    return LineError(line, code, field, fields, text[begin:end].tobytes())
