"""The raw column of a dense feature, a weight or a label → float64 with NaN for missing, strictly.

Numbers and decimal texts are taken; None, NaN and the empty text are missing. Infinite values are bad, and so are
fractions where the schema says raw: int.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lanner.errors import DataError
from lanner.prep.keys import Values, plain
from lanner.prep.texts import as_arrow, is_text, null_mask, plain_texts

_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[nN][aA][nN]"
_MANY = 64
"""From so many values on, Arrow's way of parsing texts pays for its fixed cost."""
_IS_NUMBER = re.compile(_NUMBER, re.ASCII).fullmatch


def numbers_of(values: Values, column: str, whole: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """float64 [n] with NaN for missing, and a bool mask [n] of bad values (also NaN there).

    Raises DataError naming `column` where its type holds no numbers at all.
    """
    if isinstance(values, list | tuple) or (isinstance(values, np.ndarray) and values.dtype.kind in "OUS"):
        numbers, bad = _object_numbers(values)
    else:
        numbers, bad = _arrow_numbers(as_arrow(values), column)
        bad |= np.isinf(numbers)
    if whole:
        bad |= (numbers != np.floor(numbers)) & ~np.isnan(numbers)
    if bad.any():
        numbers = np.where(bad, np.nan, numbers)
    return numbers, bad


def require_numbers(values: Values, column: str, whole: bool = False) -> np.ndarray:
    """Like `numbers_of`, but raises DataError naming column, row and value where a value is bad."""
    numbers, bad = numbers_of(values, column, whole)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        kind = "an integer" if whole else "a finite number"
        raise DataError(f"column {column!r}, row {row}: {plain(values[row])!r} is not {kind}")
    return numbers


def _object_numbers(values: Sequence[Any] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if len(values) >= _MANY:
        kinds = set(map(type, values))
        if kinds <= {str, type(None)}:
            with suppress(UnicodeError):
                return _text_numbers(pa.array(values, pa.string()))
        if kinds <= {int, float, type(None)}:
            with suppress(OverflowError):
                numbers = np.array(values, np.float64)
                return numbers, np.isinf(numbers)
    numbers = np.array([_number(value) for value in values], np.float64)
    return numbers, np.isinf(numbers)


def _number(value: Any) -> float:
    """A number, NaN when missing, infinite when it is none."""
    if value is None:
        return np.nan
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        if (value.isascii() and value.isdigit()) or _IS_NUMBER(value):
            return float(value)
        return np.inf if value else np.nan
    if isinstance(value, int | float | np.number | np.bool_):
        try:
            return float(value)
        except OverflowError:
            return np.inf
    return np.inf


def _arrow_numbers(array: pa.Array, column: str) -> tuple[np.ndarray, np.ndarray]:
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
    if is_text(array.type):
        return _text_numbers(plain_texts(array))
    simple = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not (simple or pa.types.is_decimal(kind) or pa.types.is_null(kind)):
        raise DataError(f"column {column!r} is {kind}, expected numbers")
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    numbers = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.where(null_mask(array), np.nan, numbers), np.zeros(len(array), np.bool_)


def _text_numbers(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    empty = np.array(pc.fill_null(pc.equal(texts, ""), True))
    fits = np.array(pc.fill_null(pc.match_substring_regex(texts, f"^({_NUMBER})$"), True)) | empty
    plain = pc.if_else(pa.array(fits & ~empty), texts, pa.scalar(None, texts.type))
    plain = pc.replace_substring_regex(plain, r"^\+", "")
    numbers = plain.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.where(null_mask(plain), np.nan, numbers), ~fits | np.isinf(numbers)
