"""The raw column of a sparse feature → `Keys`: one value a row, or a bag of values from a list or a split text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lanner.errors import DataError
from lanner.prep.chunk import Keys
from lanner.prep.keys import EXPECTED, Scalars, Values, logged_key, plain, scalar_keys
from lanner.prep.texts import as_arrow, is_text, plain_texts
from lanner.schema import Sparse


@dataclass(slots=True)
class Parsed:
    """Keys of a feature, and which rows (bool [rows]) hold something its schema does not allow."""

    keys: Keys
    bad: np.ndarray


def feature_keys(feature: Sparse, values: Values, keep_texts: bool = False) -> Parsed:
    """Keys of `values`, the raw column of `feature`.

    A bag is a list, or a text split at the feature's separator; missing elements are left out, and of more than
    `max_hotness` the last ones are kept. Raises DataError where the whole column has a wrong type.
    """
    if feature.one_hot:
        found = _without_blank(feature, scalar_keys(feature.raw, values, feature.source, keep_texts))
        return Parsed(Keys(found.keys, found.missing if found.missing.any() else None, texts=found.texts), found.bad)
    flat, offsets = _flattened(feature, values)
    return _bags(feature, _without_blank(feature, scalar_keys(feature.raw, flat, feature.source, keep_texts)), offsets)


def _without_blank(feature: Sparse, found: Scalars) -> Scalars:
    """`found` with the feature's `blank` among the missing values."""
    if feature.blank is not None:
        found.missing |= found.keys == logged_key(feature.raw, feature.blank)
    return found


def require_good(feature: Sparse, values: Values) -> Keys:
    """The keys of `values`; raises DataError naming column, row and value where a row is bad."""
    parsed = feature_keys(feature, values)
    if parsed.bad.any():
        row = int(np.flatnonzero(parsed.bad)[0])
        raise DataError(f"column {feature.source!r}, row {row}: {problem(feature, raw_value(values, row))}")
    return parsed.keys


def raw_value(values: Values, row: int) -> Any:
    """One value of a raw column as a Python object."""
    return plain(values[row])


def problem(feature: Sparse, value: Any) -> str:
    """What is wrong with a bad raw value of `feature`, for people."""
    shown = repr(value if len(repr(value)) <= 80 else repr(value)[:77] + "...")
    if feature.one_hot:
        return f"{shown} is not {EXPECTED[feature.raw]}"
    wanted = f"{feature.hotness} values, each" if feature.hotness else "values, each"
    return f"{shown} is not {wanted} {EXPECTED[feature.raw]}"


def _bags(feature: Sparse, found: Scalars, offsets: np.ndarray) -> Parsed:
    rows = len(offsets) - 1
    bad = np.zeros(rows, np.bool_)
    bad[np.searchsorted(offsets, np.flatnonzero(found.bad), side="right") - 1] = True
    keep = ~found.missing
    if feature.max_hotness is not None:
        before = np.concatenate([[0], np.cumsum(keep)])
        to_end = before[np.repeat(offsets[1:], np.diff(offsets))] - before[:-1]
        keep &= to_end <= feature.max_hotness
    keys, texts = found.keys, found.texts
    if not keep.all():
        offsets = np.concatenate([[0], np.cumsum(keep)])[offsets]
        keys = keys[keep]
        texts = None if texts is None else texts.filter(pa.array(keep))
    if feature.hotness is not None:
        lengths = np.diff(offsets)
        bad |= (lengths != 0) & (lengths != feature.hotness)
    return Parsed(Keys(keys, offsets=offsets, texts=texts), bad)


def _flattened(feature: Sparse, values: Values) -> tuple[Values, np.ndarray]:
    """All elements of all bags, and where each row's begin: int64 [rows + 1]."""
    if isinstance(values, np.ndarray) and values.ndim == 2:
        return values.ravel(), np.arange(len(values) + 1, dtype=np.int64) * values.shape[1]
    if isinstance(values, list | tuple | np.ndarray):
        return _flattened_objects(feature, values)
    array = as_arrow(values)
    if is_text(array.type):
        array = pc.split_pattern(plain_texts(array), _separator(feature))
    elif pa.types.is_null(array.type):
        return [], np.zeros(len(array) + 1, np.int64)
    if not pa.types.is_list(array.type) and not pa.types.is_large_list(array.type):
        if not pa.types.is_fixed_size_list(array.type):
            raise DataError(
                f"column {feature.source!r} is {array.type}, expected lists or texts of {feature.raw} values"
            )
        array = array.cast(pa.list_(array.type.value_type))
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
    return array.flatten(), np.concatenate([[0], np.cumsum(lengths)])


def _flattened_objects(feature: Sparse, values: Sequence[Any] | np.ndarray) -> tuple[list[Any], np.ndarray]:
    flat: list[Any] = []
    offsets = np.zeros(len(values) + 1, np.int64)
    for row, value in enumerate(values):
        if isinstance(value, bytes):
            value = value.decode(errors="surrogateescape")
        if isinstance(value, str):
            flat += value.split(_separator(feature)) if value else ()
        elif isinstance(value, list | tuple | np.ndarray):
            flat += value
        elif value is not None and not (isinstance(value, float) and math.isnan(value)):
            kind = type(value).__name__
            raise DataError(f"column {feature.source!r}, row {row}: {value!r} ({kind}), expected a list or a text")
        offsets[row + 1] = len(flat)
    return flat, offsets


def _separator(feature: Sparse) -> str:
    if feature.separator is None:
        raise DataError(f"column {feature.source!r} holds texts, but the schema gives no separator to split them at")
    return feature.separator
