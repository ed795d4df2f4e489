"""The tokenizer in plain Python: slow, obvious, and what the fast one is held equal to."""

from __future__ import annotations

import re

import numpy as np

from lanner.kernels.tokenize import Layout, LineError, Tokens
from lanner.kernels.tokenize.codes import DIGIT, FIELDS, HEX_DIGIT, HEX_LENGTH, LABEL, OVERFLOW

_INTEGER = re.compile(rb"-?[0-9]+")
_HEX = re.compile(rb"[0-9a-fA-F]+")
_DECIMAL = re.compile(rb"[0-9]+\.?[0-9]*|\.[0-9]+")


class _FieldError(Exception):
    def __init__(self, code: int) -> None:
        self.code = code


def tokenize(text: bytes, layout: Layout) -> Tokens:
    """Like `lanner.kernels.tokenize.tokenize` with int64 numbers, of bytes that need no padding."""
    lines = text.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    rows: list[list[float | int | None]] = []
    errors: list[LineError] = []
    for number, line in enumerate(lines):
        fields = line.removesuffix(b"\r").split(layout.delimiter.encode())
        if fields == [b""] and layout.fields > 1:
            continue
        row: list[float | int | None] = []
        try:
            for field, value in enumerate(fields[: layout.fields]):
                row.append(_value(value, field, layout))
            if len(fields) != layout.fields:
                raise _FieldError(FIELDS)
        except _FieldError as error:
            code = error.code if len(fields) == layout.fields else FIELDS
            errors.append(LineError(number, code, len(row) if code != FIELDS else 0, len(fields), line))
        else:
            rows.append(row)
    return _tokens(rows, len(lines), layout, errors)


def _value(text: bytes, field: int, layout: Layout) -> float | int | None:
    if layout.labelled and field == 0:
        return _label(text, layout.soft)
    if not text:
        return None
    if field < layout.labelled + layout.numeric:
        return _integer(text)
    if not _HEX.fullmatch(text):
        digits = _HEX.match(text)
        raise _FieldError(HEX_LENGTH if digits and len(digits[0]) > 8 else HEX_DIGIT)
    if len(text) > 8:
        raise _FieldError(HEX_LENGTH)
    return int(text, 16)


def _label(text: bytes, soft: bool) -> float:
    if soft and _DECIMAL.fullmatch(text) and float(text) <= 1:
        return float(text)
    if soft or text not in (b"0", b"1"):
        raise _FieldError(LABEL)
    return float(text)


def _integer(text: bytes) -> int:
    if not _INTEGER.fullmatch(text):
        digits = _INTEGER.match(text)
        raise _FieldError(OVERFLOW if digits and not _fits(int(digits[0])) else DIGIT)
    if not _fits(int(text)):
        raise _FieldError(OVERFLOW)
    return int(text)


def _fits(value: int) -> bool:
    return -(2**63) <= value < 2**63


def _tokens(rows: list[list[float | int | None]], lines: int, layout: Layout, errors: list[LineError]) -> Tokens:
    first, last = int(layout.labelled), layout.labelled + layout.numeric
    numbers = [row[first:last] for row in rows]
    keys = [row[last:] for row in rows]
    shapes = (len(rows), layout.numeric), (len(rows), layout.categorical)
    return Tokens(
        rows=len(rows),
        lines=lines,
        labels=np.array([row[0] for row in rows] if layout.labelled else [], np.float32),
        numbers=np.array([[cell or 0 for cell in row] for row in numbers], np.int64).reshape(shapes[0]),
        number_missing=np.array([[cell is None for cell in row] for row in numbers], np.bool_).reshape(shapes[0]),
        keys=np.array([[cell or 0 for cell in row] for row in keys], np.uint32).reshape(shapes[1]).T,
        key_missing=np.array([[cell is None for cell in row] for row in keys], np.bool_).reshape(shapes[1]).T,
        errors=errors,
    )
