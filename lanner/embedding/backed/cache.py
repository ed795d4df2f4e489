"""`RowCache`: the rows in memory, and their ways in and out.

A row is in memory or not; where it is, what memory holds counts, not the file. All methods but `stain` are for one
thread alone, that of `Holds`. Rows under a hold stay where they are, so another thread may work on them meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lanner.embedding.backed.rowfile import RowFile, bookkeeping
from lanner.errors import ConfigError
from lanner.hashindex import HashIndex, capacity_for
from lanner.kernels import residence
from lanner.kernels.memory import zeros
from lanner.kernels.residence import HOLDS, ROUNDS
from lanner.quantities import bytes_text

_EVICTED = 64  # the share of all slots that is emptied at once, so that writes are many at a time: one in so many
_LARGEST = 1 << 20  # bytes of records on the way in or out at once, at most
_SMALLEST_SHARE = 32  # and one in so many of the memory
_COPIES = 5  # of them at a time: as read, as put together, as handed out
_KEPT = 8 + 8 + 1  # bytes of a slot beside its record: key, marks, stain
_SLOT = 16  # bytes of a slot of the index


class NoRoomError(Exception):
    """The rows wanted do not fit beside those that are held; how many slots they need, and how many are left."""

    def __init__(self, needed: int, left: int) -> None:
        super().__init__(needed, left)
        self.needed, self.left = needed, left


class RowCache:
    """`slots` rows of a file in memory.

    Attributes:
        arrays: by field of the file's records, [slots, ...].
        keys: int64 [slots], the row in each slot; -1 where there is none.
    """

    def __init__(self, file: RowFile, slots: int, chunk: int) -> None:
        """`chunk`: how many records are on the way at once."""
        self.file, self.slots, self._chunk = file, slots, chunk
        fields: Any = file.record.fields or {}
        self.arrays = {name: zeros((slots, *kind.shape), kind.base) for name, (kind, *_) in fields.items()}
        self.keys = zeros(slots, np.int64)
        self.keys.fill(-1)
        self._index, self._marks, self._stained = HashIndex(slots), zeros((slots, 2), np.int32), zeros(slots, np.bool_)
        self._free, self._top, self._hand = np.empty(0, np.int64), 0, 0
        self.asked = self.missed = 0

    def stain(self, slots: np.ndarray) -> None:
        """Rows in held slots have changed: they are to be written before they leave."""
        self._stained[slots] = True

    def bring(self, rows: np.ndarray, training: bool) -> tuple[np.ndarray, np.ndarray]:
        """Slots, int64 [n], of rows [n], each under one hold more; and those among them that were brought in.

        Raises NoRoomError where they do not fit, LannerError where the disk fails; all is then as before.
        """
        slots = self._index.find(rows)
        absent = np.flatnonzero(slots < 0)
        residence.hold(self._marks, slots, 1, use=training)
        brought = np.empty(0, np.int64)
        if len(absent):
            try:
                brought = self._bring(np.unique(rows[absent]))
            except BaseException:
                residence.hold(self._marks, slots, -1)
                raise
            slots[absent] = self._index.find(rows[absent])
            residence.hold(self._marks, slots[absent], 1)
        self.asked, self.missed = self.asked + len(rows), self.missed + len(absent)
        return slots, brought

    def _bring(self, rows: np.ndarray) -> np.ndarray:
        """Read absent rows, distinct and rising, into slots."""
        self._make_room(len(rows))
        slots = self._take(len(rows))
        try:
            for part in self._chunks(len(rows)):
                self._fill(slots[part], self.file.read(rows[part]))
        except BaseException:
            self._free = np.concatenate([self._free, slots])
            raise
        self._index.insert(rows, slots)
        self.keys[slots] = rows
        return slots

    def _make_room(self, count: int) -> None:
        left = len(self._free) + self.slots - self._top
        if count <= left:
            return
        wanted = max(count - left, self.slots // _EVICTED)
        leaving, self._hand = residence.sweep(self._marks, self.keys, self._hand, wanted)
        if len(leaving) < count - left:
            raise NoRoomError(count, left + len(leaving))
        self._clean(leaving)
        self._empty(leaving)

    def _take(self, count: int) -> np.ndarray:
        """The numbers of empty slots."""
        again = min(count, len(self._free))
        fresh = np.arange(self._top, self._top + count - again)
        slots, self._free = np.concatenate([self._free[:again], fresh]), self._free[again:]
        self._top += count - again
        return slots

    def let_go(self, slots: np.ndarray, guests: np.ndarray) -> None:
        """Take one hold off each of `slots`, and empty those of `guests` that nobody has come to need since."""
        residence.hold(self._marks, slots, -1)
        if len(guests):
            unused = (self._marks[guests, HOLDS] == 0) & (self._marks[guests, ROUNDS] == 0) & ~self._stained[guests]
            self._empty(guests[unused])

    @property
    def held(self) -> int:
        """How many slots are under holds."""
        return int(np.count_nonzero(self._marks[:, HOLDS]))

    def _empty(self, slots: np.ndarray) -> None:
        self._index.erase(self.keys[slots])
        self.keys[slots] = -1
        self._free = np.concatenate([self._free, slots])

    def _clean(self, slots: np.ndarray) -> None:
        """Write what has changed in `slots`."""
        slots = slots[self._stained[slots]]
        slots = slots[np.argsort(self.keys[slots])]
        for part in self._chunks(len(slots)):
            self.file.write(self.keys[slots[part]], self._records(slots[part]))
            self._stained[slots[part]] = False

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Records [n] of distinct rising rows, wherever they are."""
        slots = self._index.find(rows)
        here = slots >= 0
        found = np.empty(len(rows), self.file.record)
        found[here] = self._records(slots[here])
        if not here.all():
            found[~here] = self.file.read(rows[~here])
        return found

    def write(self, rows: np.ndarray, content: np.ndarray) -> None:
        """Put in records [n] of distinct rising rows, in memory where they are there, else on disk."""
        slots = self._index.find(rows)
        here = slots >= 0
        self._fill(slots[here], content[here])
        self._stained[slots[here]] = True
        if not here.all():
            self.file.write(rows[~here], content[~here])

    def touched(self, rows: np.ndarray) -> np.ndarray:
        """Whether each of `rows` was ever changed, bool [n]."""
        slots, changed = self._index.find(rows), self.file.written(rows)
        changed[slots >= 0] |= self._stained[slots[slots >= 0]]
        return changed

    def untouched(self) -> bool:
        """Whether no row was ever changed."""
        return self.file.empty and not self._stained.any()

    def _records(self, slots: np.ndarray) -> np.ndarray:
        content = np.empty(len(slots), self.file.record)
        for name, array in self.arrays.items():
            content[name] = array[slots]
        return content

    def _fill(self, slots: np.ndarray, content: np.ndarray) -> None:
        for name, array in self.arrays.items():
            array[slots] = content[name]

    def _chunks(self, count: int) -> Iterator[slice]:
        return (slice(begin, begin + self._chunk) for begin in range(0, count, self._chunk))

    def nbytes(self) -> int:
        """Bytes of memory held, the file's bookkeeping included."""
        return _bytes(self.slots, self.file.record, self._chunk) + self.file.nbytes


def _bytes(slots: int, record: np.dtype[np.void], chunk: int) -> int:
    return slots * (record.itemsize + _KEPT) + _SLOT * capacity_for(slots) + _COPIES * chunk * record.itemsize


def room_for(table: str, rows: int, record: np.dtype[np.void], memory: int) -> tuple[int, int]:
    """How many slots, and how many records on the way, fit `memory` bytes for a table of `rows` rows.

    Raises ConfigError where there is no slot.
    """
    chunk = max(min(_LARGEST, memory // _SMALLEST_SHARE) // record.itemsize, 1)
    left, low, high = memory - bookkeeping(rows), 0, rows
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _bytes(middle, record, chunk) <= left else (low, middle - 1)
    if not low:
        least = _bytes(1, record, 1) + bookkeeping(rows)
        raise ConfigError(
            f"table {table!r}: {bytes_text(memory)} of memory for {rows:,} rows on disk, one row alone needs "
            f"{bytes_text(least)}"
        )
    return low, chunk
