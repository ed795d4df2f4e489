"""The Numba tokenizer: one pass over the bytes that converts and validates.

Field readers take `(text, at)` with `at` on the first byte of a field and return `(code, value, at)` with `at` on the
byte that ended it; the row loop then checks that byte. The text ends in a newline followed by 8 spare bytes, so that
no read leaves it. Rows that fail are read a second time by `_diagnose`, which is slow and exact.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lanner.kernels.tokenize.codes import (
    DIGIT,
    FIELDS,
    HEX_DIGIT,
    HEX_LENGTH,
    LABEL,
    MISSING,
    OVERFLOW,
    PRESENT,
)
from lanner.kernels.tokenize.words import (
    TOPS,
    byte,
    decimal_value,
    digit_marks,
    hex_value,
    letter_marks,
    load64,
    trailing_zeros,
)

NEWLINE = np.uint8(10)
RETURN = np.uint8(13)
MINUS = np.uint8(45)
POINT = np.uint8(46)
ZERO = np.uint8(48)
LIMIT = np.uint64(2**63)

_compiled = numba.njit(nogil=True, cache=True, _nrt=False)
_inlined = numba.njit(nogil=True, cache=True, inline="always", _nrt=False)
"""Without reference counts: arrays are only borrowed here, and counting them at each field took a third of the time."""


@_compiled
def count_lines(text: Any) -> int:
    """Number of newlines in `text`."""
    lines = 0
    for char in text:
        lines += char == NEWLINE
    return lines


@_inlined
def _ends_line(text: Any, at: int) -> bool:
    return bool(byte(text, at) == NEWLINE or (byte(text, at) == RETURN and byte(text, at + 1) == NEWLINE))


@_compiled
def _long_integer(text: Any, at: int) -> Any:
    """An integer of any length at the first of its digits: (code, magnitude, end)."""
    magnitude, begin = np.uint64(0), at
    while np.uint8(byte(text, at) - ZERO) < 10:
        digit = np.uint64(byte(text, at) - ZERO)
        if magnitude > (LIMIT - digit) // np.uint64(10):
            return OVERFLOW, np.uint64(0), at
        magnitude = magnitude * np.uint64(10) + digit
        at += 1
    return (PRESENT if at > begin else DIGIT), magnitude, at


@_compiled
def _rare_integer(text: Any, at: int) -> Any:
    """A missing last field, or an integer with a minus or of eight digits and more: (code, int64 value, end)."""
    if _ends_line(text, at):
        return MISSING, np.int64(0), at
    negative = byte(text, at) == MINUS
    code, magnitude, at = _long_integer(text, at + negative)
    if magnitude == LIMIT and not negative:
        code = OVERFLOW
    return code, (np.int64(np.uint64(0) - magnitude) if negative else np.int64(magnitude)), at


@_inlined
def _integer(text: Any, at: int, delimiter: Any) -> Any:
    """An optional minus and digits, or nothing at all (missing): (code, int64 value, end)."""
    if byte(text, at) == delimiter:
        return MISSING, np.int64(0), at
    word = load64(text, at)
    length = trailing_zeros(~digit_marks(word) & TOPS) >> np.uint64(3)
    if np.uint64(0) < length < np.uint64(8):
        magnitude = decimal_value(word << (np.uint64(64) - (length << np.uint64(3))))
        return PRESENT, np.int64(magnitude), at + np.int64(length)
    return _rare_integer(text, at)


@_compiled
def _short_hex(text: Any, at: int) -> Any:
    """A hexadecimal number that is not exactly eight digits long: (code, value, end)."""
    value, begin = np.uint64(0), at
    while True:
        char = byte(text, at)
        if np.uint8(char - ZERO) < 10:
            digit = np.uint64(char - ZERO)
        elif np.uint8((char | 32) - 97) < 6:
            digit = np.uint64((char | 32) - 87)
        else:
            break
        value = (value << np.uint64(4)) | digit
        at += 1
        if at - begin > 8:
            return HEX_LENGTH, np.uint64(0), at
    return (PRESENT if at > begin else HEX_DIGIT), value, at


@_inlined
def _hexadecimal(text: Any, at: int, delimiter: Any) -> Any:
    """One to eight hexadecimal digits, or nothing at all (missing): (code, uint64 value, end)."""
    if byte(text, at) == delimiter:
        return MISSING, np.uint64(0), at
    word = load64(text, at)
    letters = letter_marks(word)
    if (digit_marks(word) | letters) == TOPS and (byte(text, at + 8) == delimiter or _ends_line(text, at + 8)):
        return PRESENT, hex_value(word, letters), at + 8
    if _ends_line(text, at):
        return MISSING, np.uint64(0), at
    return _short_hex(text, at)


@_compiled
def _soft_label(text: Any, at: int) -> Any:
    """A plain decimal number from 0 to 1 (`0.3`, `1`, `.5`): (code, value, end)."""
    mantissa, scale, digits, significant, pointed = 0.0, 1.0, 0, 0, False
    while True:
        char = byte(text, at)
        if np.uint8(char - ZERO) < 10:
            digits += 1
            significant += significant > 0 or char != ZERO
            if significant <= 15:  # what follows is below the precision of a float64
                mantissa = mantissa * 10.0 + np.float64(char - ZERO)
                scale *= 10.0 if pointed else 1.0
            elif not pointed:
                return LABEL, 0.0, at
        elif char == POINT and not pointed:
            pointed = True
        else:
            break
        at += 1
    value = mantissa / scale
    return (PRESENT if digits > 0 and value <= 1.0 else LABEL), value, at


@_inlined
def _label(text: Any, at: int, soft: bool) -> Any:
    if soft:
        return _soft_label(text, at)
    value = np.uint8(byte(text, at) - ZERO)
    return (PRESENT if value <= 1 else LABEL), np.float64(value), at + 1


@_compiled
def _skip_line(text: Any, at: int) -> int:
    while byte(text, at) != NEWLINE:
        at += 1
    return at


@_compiled
def _count_fields(text: Any, begin: int, end: int, delimiter: Any) -> int:
    fields = 1
    for at in range(begin, end):
        fields += byte(text, at) == delimiter
    return fields


@_inlined
def _read_row(
    text: Any, at: int, delimiter: Any, labelled: bool, soft: bool, fill: Any, row: int, labels: Any, numbers: Any,
    number_missing: Any, keys: Any, key_missing: Any,
) -> Any:  # fmt: skip
    """Read one line into row `row` of the outputs: (code, last field read, its end)."""
    numeric, categorical = numbers.shape[1], keys.shape[0]
    left = numeric + categorical  # fields after the one being read
    if labelled:
        code, label, at = _label(text, at, soft)
        labels[row] = label
        if code < PRESENT or byte(text, at) != delimiter:
            return LABEL, 0, at
        at += 1
    for k in range(numeric):
        left -= 1
        code, number, end = _integer(text, at, delimiter)
        missing = code == MISSING
        number_missing[row, k] = missing
        numbers[row, k] = number
        if missing:
            numbers[row, k] = fill
        ended = byte(text, end) == delimiter if left else _ends_line(text, end)
        if code < PRESENT or not ended:
            return min(code, DIGIT), labelled + k, end
        at = end + 1
    for k in range(categorical):
        left -= 1
        code, key, end = _hexadecimal(text, at, delimiter)
        keys[k, row] = np.uint32(key)
        key_missing[k, row] = code == MISSING
        ended = byte(text, end) == delimiter if left else _ends_line(text, end)
        if code < PRESENT or not ended:
            return min(code, HEX_DIGIT), labelled + numeric + k, end
        at = end + 1
    return PRESENT, 0, at - 1


@_compiled
def tokenize(
    text: Any, delimiter: Any, labelled: bool, soft: bool, fill: Any, labels: Any, numbers: Any, number_missing: Any,
    keys: Any, key_missing: Any, errors: Any,
) -> Any:  # fmt: skip
    """Read every line of `text`; returns (rows, lines, bad rows).

    `errors` takes one row per bad line: its 0-based line, code, field, number of fields seen, begin, end.
    """
    fields, end = labelled + numbers.shape[1] + keys.shape[0], text.shape[0] - 8
    at = row = line = bad = 0
    while at < end:
        begin = at
        if fields > 1 and _ends_line(text, at):  # a blank line is no row
            at += 1 + (byte(text, at) == RETURN)
            line += 1
            continue
        code, field, at = _read_row(
            text, begin, delimiter, labelled, soft, fill, row, labels, numbers, number_missing, keys, key_missing
        )
        if code == PRESENT:
            at += 1 + (byte(text, at) == RETURN)
            row += 1
        else:
            stop = _skip_line(text, begin)
            seen = _count_fields(text, begin, stop, delimiter)
            if seen != fields:
                code, field = FIELDS, 0
            errors[bad, 0], errors[bad, 1], errors[bad, 2] = line, code, field
            errors[bad, 3], errors[bad, 4], errors[bad, 5] = seen, begin, stop
            bad += 1
            at = stop + 1
        line += 1
    return row, line, bad
