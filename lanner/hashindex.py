"""`HashIndex`: int64 key → row, in batches, over one flat array.

Any key is legal. Open addressing with 16 bytes a slot, at most 70 % full (about 23 to 46 bytes a key); erasing
leaves no marks behind. Find and insert fetch ahead, so that many cache misses are in flight at once; large finds
use all kernel threads. See `lanner.kernels.hashing.slots` for the layout.
"""

from __future__ import annotations

import numpy as np

from lanner.errors import DataError
from lanner.kernels import memory, parallel
from lanner.kernels.hashing import slots as kernels

_SMALLEST = 16
_FULLEST = 0.7
_GRAIN = 1 << 14


def capacity_for(count: int) -> int:
    """Slots (a power of two) that hold `count` keys without growing."""
    capacity = _SMALLEST
    while count > int(capacity * _FULLEST):
        capacity *= 2
    return capacity


class HashIndex:
    """A map from int64 keys to rows 0..2^62, `capacity` keys at first without growing.

    Keys are one-dimensional arrays of int64, or of uint32, which are widened. Any number of threads may find at the
    same time; whoever changes the index must be alone with it. `slots` and `mask` are what kernels that search in
    the same pass as they work take; both change when the index grows.
    """

    def __init__(self, capacity: int = 0) -> None:
        self._size = 0
        self._set_slots(memory.zeros(2 * capacity_for(capacity), np.int64))

    def _set_slots(self, slots: np.ndarray) -> None:
        self.slots = slots
        self.mask = np.uint64(len(slots) // 2 - 1)
        self._limit = int(len(slots) // 2 * _FULLEST)

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return int(self.slots.nbytes)

    def find(self, keys: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Rows of `keys`, int64 [n], -1 where a key is absent; written to `out` when given."""
        keys = _checked(keys)
        rows = np.empty(len(keys), np.int64) if out is None else out
        parallel.run(kernels.find, len(keys), self.slots, self.mask, keys, rows, grain=_GRAIN)
        return rows

    def insert(self, keys: np.ndarray, rows: np.ndarray) -> int:
        """Set the row of each key; of a key given twice the last row counts. Returns how many keys were new.

        Raises DataError when lengths differ or a row is negative.
        """
        keys, rows, before = _checked(keys), np.ascontiguousarray(rows, np.int64), self._size
        if len(keys) != len(rows):
            raise DataError(f"hash index: {len(keys)} keys with {len(rows)} rows")
        if len(rows) and (lowest := int(rows.min())) < 0:
            raise DataError(f"hash index: row {lowest} is negative")
        self._fill(kernels.insert, keys, rows)
        return self._size - before

    def assign(self, keys: np.ndarray) -> np.ndarray:
        """Rows of `keys`, int64 [n]; new keys get the next rows, len(index) onwards, in order of appearance.

        Only for an index whose rows are 0..len-1: one filled by `assign` alone.
        """
        keys = _checked(keys)
        rows = np.empty(len(keys), np.int64)
        self._fill(kernels.assign, keys, rows)
        return rows

    def _fill(self, kernel: object, keys: np.ndarray, rows: np.ndarray) -> None:
        done = 0
        while done < len(keys):
            done, self._size = kernel(self.slots, self.mask, keys, rows, done, self._size, self._limit)  # type: ignore[operator]
            if done < len(keys):
                self.reserve(self._limit + 1)

    def erase(self, keys: np.ndarray) -> np.ndarray:
        """Take keys out; returns the rows they had, int64 [n], -1 where a key was absent (or given before)."""
        keys = _checked(keys)
        rows = np.empty(len(keys), np.int64)
        self._size -= int(kernels.erase(self.slots, self.mask, keys, rows))
        return rows

    def reserve(self, count: int) -> None:
        """Make room for `count` keys in all, so that inserts up to there do not stop to grow."""
        if count <= self._limit:
            return
        larger = memory.zeros(2 * capacity_for(count), np.int64)
        kernels.rehash(self.slots, larger, np.uint64(len(larger) // 2 - 1))
        self._set_slots(larger)

    def items(self) -> tuple[np.ndarray, np.ndarray]:
        """All keys and their rows, int64 [len] each, in no particular order."""
        keys, values = np.empty(self._size, np.int64), np.empty(self._size, np.int64)
        kernels.items(self.slots, keys, values)
        return keys, values - 1


def _checked(keys: np.ndarray) -> np.ndarray:
    if keys.ndim != 1 or keys.dtype not in (np.int64, np.uint32):
        raise DataError(f"hash index: keys are {keys.dtype} [{keys.ndim}-D], expected int64 or uint32, 1-D")
    return np.ascontiguousarray(keys)
