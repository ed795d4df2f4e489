"""The raw columns of a request → numbers and keys, as `assemble` does it for files.

Columns given as Python lists, as a request of few rows has them, are parsed together: one pass over all values of a
kind instead of one a column. What comes out is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import numpy as np

from lanner.prep.bags import require_good
from lanner.prep.chunk import Keys
from lanner.prep.keys import Values, scalar_keys
from lanner.prep.numbers import numbers_of, require_numbers
from lanner.schema import Raw, Schema, Sparse

_TOGETHER = 4096
"""Most values that are parsed together; from there on columns are worth a pass of their own."""


def dense_block(schema: Schema, columns: Mapping[str, Values], rows: int) -> np.ndarray:
    """float64 [rows, D], NaN where missing or where the column is not given.

    Raises DataError naming column, row and value where a value is no number.
    """
    given = [at for at, dense in enumerate(schema.dense) if dense.source in columns]
    lists = [columns[schema.dense[at].source] for at in given]
    block = np.full((rows, len(schema.dense)), np.nan)
    if _small_lists(lists, rows):
        numbers, bad = numbers_of(list(chain.from_iterable(lists)), "")
        whole = np.repeat([schema.dense[at].raw == "int" for at in given], rows)
        if not bad.any() and not (whole & (numbers != np.floor(numbers)) & ~np.isnan(numbers)).any():
            block[:, given] = numbers.reshape(len(given), rows).T
            return block
    for at, values in zip(given, lists, strict=True):
        block[:, at] = require_numbers(values, schema.dense[at].source, schema.dense[at].raw == "int")
    return block


def sparse_keys(schema: Schema, columns: Mapping[str, Values], rows: int) -> list[Keys]:
    """Keys of every sparse feature in schema order; all values of a column that is not given are missing.

    Raises DataError naming column, row and value where a value is not what the schema says.
    """
    together: dict[Raw, list[int]] = {}
    for at, feature in enumerate(schema.sparse):
        if feature.one_hot and feature.blank is None and isinstance(columns.get(feature.source), list | tuple):
            together.setdefault(feature.raw, []).append(at)
    found: list[Keys | None] = [None] * len(schema.sparse)
    for raw, places in together.items():
        lists = [columns[schema.sparse[at].source] for at in places]
        if _small_lists(lists, rows):
            scalars = scalar_keys(raw, list(chain.from_iterable(lists)), schema.sparse[places[0]].source)
            masked = scalars.missing.any()
            for k, at in enumerate(places if not scalars.bad.any() else ()):
                own = slice(k * rows, (k + 1) * rows)
                found[at] = Keys(scalars.keys[own], scalars.missing[own] if masked else None)
    return [known or _keys(feature, columns, rows) for known, feature in zip(found, schema.sparse, strict=True)]


def _small_lists(lists: list[Values], rows: int) -> bool:
    return bool(lists) and rows * len(lists) <= _TOGETHER and all(isinstance(values, list | tuple) for values in lists)


def _keys(feature: Sparse, columns: Mapping[str, Values], rows: int) -> Keys:
    if feature.source in columns:
        return require_good(feature, columns[feature.source])
    if feature.one_hot:
        return Keys(np.zeros(rows, np.int64), np.ones(rows, np.bool_))
    return Keys(np.zeros(0, np.int64), offsets=np.zeros(rows + 1, np.int64))
