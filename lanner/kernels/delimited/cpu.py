"""The loops over delimited text in Numba."""

from __future__ import annotations

import numba as nb
import numpy as np

GOOD, FIELDS, QUOTES = 0, 1, 2
_QUOTE, _NEWLINE, _RETURN, _SPACE, _TAB = 34, 10, 13, 32, 9


@nb.njit(nogil=True, inline="always")
def _blank(char: int, delimiter: int) -> bool:
    return char in (_SPACE, _TAB) and char != delimiter


@nb.njit(nogil=True, cache=True)
def _quoted_end(text: np.ndarray, at: int) -> tuple[int, bool, int]:
    """For a quoted field whose text begins at `at`: its end (-1: none), doubled quotes or not, newlines inside."""
    size, doubled, newlines = text.shape[0], False, 0
    while at < size:
        char = text[at]
        if char == _QUOTE:
            if at + 1 < size and text[at + 1] == _QUOTE:
                doubled = True
                at += 1
            else:
                return at, doubled, newlines
        newlines += char == _NEWLINE
        at += 1
    return -1, doubled, newlines


@nb.njit(nogil=True, cache=True)
def _after_quotes(text: np.ndarray, at: int, delimiter: int, strip: bool) -> tuple[int, bool]:
    """Where the field ends whose closing quote is just before `at`, and whether only blanks lie between."""
    clean = True
    while text[at] != delimiter and text[at] != _NEWLINE:
        line_end = text[at] == _RETURN and text[at + 1] == _NEWLINE
        clean &= line_end or (strip and _blank(text[at], delimiter))
        at += 1
    return at, clean


@nb.njit(nogil=True, cache=True)
def _plain_end(text: np.ndarray, begin: int, delimiter: int, strip: bool) -> tuple[int, int]:
    """End of the value of an unquoted field, and where the field itself ends."""
    at = begin
    while text[at] != delimiter and text[at] != _NEWLINE:
        at += 1
    end = at
    if text[at] == _NEWLINE and end > begin and text[end - 1] == _RETURN:
        end -= 1
    while strip and end > begin and _blank(text[end - 1], delimiter):
        end -= 1
    return end, at


@nb.njit(nogil=True, cache=True)
def split(
    text: np.ndarray,
    delimiter: int,
    strip: bool,
    slots: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    escaped: np.ndarray,
    found: np.ndarray,
    status: np.ndarray,
    lines: np.ndarray,
    bounds: np.ndarray,
) -> tuple[int, int, int]:
    """Fill the arrays of `Records`; returns the number of records, bytes and lines taken."""
    size, fields = text.shape[0], slots.shape[0]
    row = at = line = 0
    while at < size:
        start, first_line, field, clean, empty = at, line, 0, True, True
        while field == 0 or text[at - 1] != _NEWLINE:  # one field a turn
            while strip and _blank(text[at], delimiter):
                at += 1
            doubled, quoted = False, text[at] == _QUOTE
            if quoted:
                begin = at + 1
                end, doubled, newlines = _quoted_end(text, begin)
                if end < 0:
                    return row, start, first_line
                line += newlines
                at, alone = _after_quotes(text, end + 1, delimiter, strip)
                clean &= alone
            else:
                begin = at
                end, at = _plain_end(text, begin, delimiter, strip)
            if field < fields and slots[field] >= 0:
                slot = slots[field]
                begins[slot, row], ends[slot, row], escaped[slot, row] = begin, end, doubled
            empty &= field == 0 and begin == end and not quoted
            field += 1
            at += 1
        line += 1
        if empty:
            continue
        found[row], lines[row] = field, first_line
        status[row] = QUOTES if not clean else GOOD if field == fields else FIELDS
        bounds[0, row], bounds[1, row] = start, at - 1 - int(at > start + 1 and text[at - 2] == _RETURN)
        row += 1
    return row, at, line


@nb.njit(nogil=True, inline="always")
def _is_null(text: np.ndarray, begin: int, end: int, nulls: np.ndarray, null_offsets: np.ndarray) -> bool:
    for k in range(null_offsets.shape[0] - 1):
        start = null_offsets[k]
        if null_offsets[k + 1] - start == end - begin:
            same = True
            for j in range(end - begin):
                same &= text[begin + j] == nulls[start + j]
            if same:
                return True
    return False


@nb.njit(nogil=True, cache=True)
def measure(
    text: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    escaped: np.ndarray,
    nulls: np.ndarray,
    null_offsets: np.ndarray,
    offsets: np.ndarray,
) -> None:
    """offsets[i + 1] - offsets[i] = length of field i without doubled quotes; 0 where it is one of the nulls."""
    for i in range(begins.shape[0]):
        begin, end = np.int64(begins[i]), np.int64(ends[i])
        length = end - begin
        if escaped[i]:
            at = begin
            while at < end:
                if text[at] == _QUOTE:
                    length -= 1
                    at += 1
                at += 1
        elif _is_null(text, begin, end, nulls, null_offsets):
            length = 0
        offsets[i + 1] = offsets[i] + length


@nb.njit(nogil=True, cache=True)
def gather(
    text: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    escaped: np.ndarray,
    offsets: np.ndarray,
    data: np.ndarray,
) -> None:
    """Copy field i to data[offsets[i]:offsets[i + 1]], doubled quotes as one."""
    for i in range(begins.shape[0]):
        at, target, end = np.int64(begins[i]), np.int64(offsets[i]), np.int64(offsets[i + 1])
        while target < end:
            data[target] = text[at]
            at += 2 if escaped[i] and text[at] == _QUOTE else 1
            target += 1
