"""What rows are called, wherever they lie: the random rounding of 16-bit rows goes by it.

So a row is rounded alike whatever tables lie beside its own, on whatever process, in whatever place of a cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from lanner.kernels.random.reference import mix

Array = np.ndarray[Any, Any]

FIRST_ROW, STREAM, FIRST, PACE, COLUMN = range(5)
"""Columns of `Names.tables`."""

FIELDS = 5
"""Their number."""


class Names(NamedTuple):
    """The tables of a joint weight array, and the keys of its rows; a table of a layout lies within one of these.

    tables    int64 [T, 5], FIRST_ROW rising from 0: the row at which the table begins, a number that tells it from
              others, and which part of a whole it is: its key k is key k * PACE + FIRST there, column c COLUMN + c
    keys      int64 [rows], the keys of rows; None: their numbers within their table
    """

    tables: Array
    keys: Tensor | None = None


UNNAMED = Names(np.array([(0, 0, 0, 1, 0)], np.int64))
"""One table, whose keys are row numbers."""


def lines_of(names: Names, rows: Array | int) -> Array:
    """The lines of `names.tables`, int64 [n, 5], of the tables that rows int64 [n] belong to; or [5], of one row's."""
    lines: Array = names.tables[np.searchsorted(names.tables[:, FIRST_ROW], rows, "right") - 1]
    return lines


def words(names: Names, rows: Array, seed: int) -> tuple[Array, Array]:
    """For rows int64 [n] their random word in the step of this seed, uint64 [n], and their first column, int64 [n].

    Both are contiguous.
    """
    lines = lines_of(names, rows)
    keys = rows - lines[:, FIRST_ROW] if names.keys is None else names.keys.numpy()[rows]
    with np.errstate(over="ignore"):
        streams = lines[:, STREAM].astype(np.uint64) + np.uint64(seed)
        found = mix(streams, (keys * lines[:, PACE] + lines[:, FIRST]).astype(np.uint64))
    return found, np.ascontiguousarray(lines[:, COLUMN])
