"""`FirstRows`: the row in which each value was seen first, for vocabularies in that order."""

from __future__ import annotations

import numpy as np

from lanner.hashindex import HashIndex
from lanner.prep.chunk import Keys


class FirstRows:
    """Row numbers by key, about 50 bytes a distinct one."""

    def __init__(self) -> None:
        self._index = HashIndex()
        self._rows = np.zeros(0, np.int64)

    def add(self, keys: np.ndarray, rows: np.ndarray) -> None:
        """Take in keys (int64 or uint32 [n]) seen in `rows` (int64 [n]), in any order."""
        if not len(keys):
            return
        known = len(self._index)
        places = self._index.assign(np.ascontiguousarray(keys))
        if (used := len(self._index)) > len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty(max(used, 1024), np.int64)])
        self._rows[known:used] = np.iinfo(np.int64).max
        np.minimum.at(self._rows, places, rows)

    def of(self, keys: np.ndarray) -> np.ndarray:
        """The first row of each of `keys`, all of them seen (int64 [n])."""
        rows: np.ndarray = self._rows[self._index.find(keys)]
        return rows


def rows_of(keys: Keys, first: int) -> np.ndarray:
    """The row number of each key of a chunk whose own rows begin at `first` (int64 [keys])."""
    if keys.offsets is None:
        return np.arange(first, first + len(keys.keys))
    return np.repeat(np.arange(first, first + len(keys.offsets) - 1), np.diff(keys.offsets))
