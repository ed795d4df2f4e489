"""Raw label columns → numbers. A value that no rule covers is bad; an empty cell is never taken for 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lanner.prep.keys import Values
from lanner.prep.numbers import numbers_of
from lanner.prep.texts import as_arrow, is_text, plain_texts
from lanner.schema import Label


def label_values(label: Label, values: Values) -> tuple[np.ndarray, np.ndarray]:
    """float32 [n], and a bool mask [n] of bad values (0.0 there).

    By the first rule that the label states: `positive` and `negative` texts give 1 and 0; `at_least` gives 1 where
    the number is no smaller; `soft` takes any number in [0, 1]; task `regression` any finite number, `multiclass` a
    whole number from 0; otherwise 0 or 1 (or a boolean). Raises DataError where the column cannot hold labels.
    """
    if label.positive:
        return _by_text(label, values)
    numbers, bad = numbers_of(values, label.source)
    if label.at_least is not None:
        good, numbers = ~np.isnan(numbers), (numbers >= label.at_least).astype(np.float64)
    elif label.soft:
        good = (numbers >= 0) & (numbers <= 1)
    elif label.task == "regression":
        good = np.abs(numbers) <= np.finfo(np.float32).max
    elif label.task == "multiclass":
        good = (numbers >= 0) & (numbers == np.floor(numbers)) & (numbers < 2**24)
    else:
        good = (numbers == 0) | (numbers == 1)
    bad |= ~good
    return np.where(bad, 0.0, numbers).astype(np.float32), bad


def expected(label: Label) -> str:
    """What a label may be, for messages."""
    if label.positive:
        return f"one of {', '.join(map(repr, (*label.positive, *label.negative)))}"
    if label.at_least is not None or label.task == "regression":
        return "a finite number"
    if label.soft:
        return "a number from 0 to 1"
    return "a class number, 0 or above" if label.task == "multiclass" else "0 or 1"


def problem(label: Label, value: Any) -> str:
    """What is wrong with a bad label, for people."""
    return f"label {value!r} is not {expected(label)}"


def _by_text(label: Label, values: Values) -> tuple[np.ndarray, np.ndarray]:
    array = as_arrow(values if not isinstance(values, list | tuple) else pa.array(values))
    array = plain_texts(array) if is_text(array.type) else array.cast(pa.string())
    one = np.array(pc.is_in(array, pa.array(label.positive, array.type)))
    zero = np.array(pc.is_in(array, pa.array(label.negative, array.type)))
    return one.astype(np.float32), ~(one | zero)
