"""`HashIndex`: int64 key → row, in batches, over flat arrays.

Any key is legal. Open addressing with 16 bytes a slot, at most 70 % full (about 23 to 46 bytes a key); erasing
leaves no marks behind. Find and insert fetch ahead, so that many cache misses are in flight at once; large finds
use all kernel threads. An index that is full grows in small steps, a few slots with each key that comes, so that no
batch waits for the whole to be moved. See `lanner.kernels.hashing.slots` for the layout.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lanner.errors import DataError
from lanner.kernels import memory, parallel
from lanner.kernels.hashing import slots as kernels

_SMALLEST = 16
_FULLEST = 0.7
_GRAIN = 1 << 14
_MOVED_WITH_A_KEY = 6  # old slots: their array gains a sixth of its slots at most until all are moved (87 % full)


def capacity_for(count: int) -> int:
    """Slots (a power of two) that hold `count` keys without growing."""
    capacity = _SMALLEST
    while count > int(capacity * _FULLEST):
        capacity *= 2
    return capacity


class HashIndex:
    """A map from int64 keys to rows 0..2^62, `capacity` keys at first without growing.

    Keys are one-dimensional arrays of int64, or of uint32, which are widened. Any number of threads may find at the
    same time; whoever changes the index must be alone with it. `slots` and `plan` are what kernels that search in
    the same pass as they work take; both change when keys are added.
    """

    def __init__(self, capacity: int = 0) -> None:
        self._size = 0
        self._set(memory.zeros(2 * capacity_for(capacity), np.int64))

    def _set(self, slots: np.ndarray, old: np.ndarray | None = None) -> None:
        """Work on `slots` from now on, with what `old` holds still to be moved there."""
        self.slots, self._old = slots, old
        self.plan = kernels.settled(slots) if old is None else kernels.growing(slots, old)
        self._limit = int(len(slots) // 2 * _FULLEST)

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return int(self.slots.nbytes) + (0 if self._old is None else int(self._old.nbytes))

    def find(self, keys: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Rows of `keys`, int64 [n], -1 where a key is absent; written to `out` when given."""
        keys = _checked(keys)
        rows = np.empty(len(keys), np.int64) if out is None else out
        parallel.run(kernels.find, len(keys), self.slots, self.plan, keys, rows, grain=_GRAIN)
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
        self.fill(kernels.insert, keys, rows)
        return self._size - before

    def assign(self, keys: np.ndarray) -> np.ndarray:
        """Rows of `keys`, int64 [n]; new keys get the next rows, len(index) onwards, in order of appearance.

        Only for an index whose rows are 0..len-1: one filled by `assign` alone.
        """
        keys = _checked(keys)
        rows = np.empty(len(keys), np.int64)
        self.fill(kernels.assign, keys, rows)
        return rows

    def fill(self, kernel: Callable[..., tuple[int, int]], keys: np.ndarray, beside: np.ndarray) -> None:
        """Add keys by a kernel with the arguments of `slots.insert`, which takes or sets `beside[i]` for keys[i]."""
        done = 0
        while True:
            self._move(_MOVED_WITH_A_KEY * (len(keys) - done))
            done, self._size = kernel(self.slots, self.plan, keys, beside, done, self._size, self._limit)
            if done == len(keys):
                return
            self._grow(2 * len(self.slots))

    def _grow(self, words: int) -> None:
        self._move(len(self.slots))
        self._set(memory.zeros(words, np.int64), self.slots)

    def _move(self, count: int) -> None:
        """Move `count` old slots or a few more, if so many are left."""
        if self._old is not None and kernels.move(self.slots, self._old, self.plan, count):
            self._set(self.slots)

    def erase(self, keys: np.ndarray) -> np.ndarray:
        """Take keys out; returns the rows they had, int64 [n], -1 where a key was absent (or given before)."""
        keys = _checked(keys)
        rows = np.empty(len(keys), np.int64)
        self._size -= int(kernels.erase(self.slots, self.plan, keys, rows))
        return rows

    def reserve(self, count: int) -> None:
        """Make room for `count` keys in all at once, so that inserts up to there need not grow."""
        if count > self._limit:
            self._grow(2 * capacity_for(count))
            self._move(len(self.slots))

    def items(self) -> tuple[np.ndarray, np.ndarray]:
        """All keys and their rows, int64 [len] each, in no particular order."""
        keys, values = np.empty(self._size, np.int64), np.empty(self._size, np.int64)
        moved = kernels.items(self.slots, keys, values)
        if self._old is not None:
            kernels.items(self._old, keys[moved:], values[moved:])
        return keys, values - 1


def _checked(keys: np.ndarray) -> np.ndarray:
    if keys.ndim != 1 or keys.dtype not in (np.int64, np.uint32):
        raise DataError(f"hash index: keys are {keys.dtype} [{keys.ndim}-D], expected int64 or uint32, 1-D")
    return np.ascontiguousarray(keys)
