"""The order in which an epoch reads the rows of a split, computed place by place: it needs no memory, and no start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lanner.kernels.permutation import permute

_STRETCHES = 64  # in a window
_FAR = 0x9E3779B97F4A7C15

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A random order of `rows` rows for every `epoch`, given by `seed`.

    Without `window`, or with one of all rows, every order is as likely as any. With it, rows are cut into stretches of
    a 64th of a window, from another row on in every epoch. Stretches come in random order, and so do the rows of each
    64 stretches that follow one another: reading needs the rows of one window at a time.
    """

    rows: int
    window: int | None
    seed: int

    @property
    def windowed(self) -> bool:
        """Whether there is more than one window."""
        return self.window is not None and self.window < self.rows

    @property
    def _stretch(self) -> int:
        return -(-(self.window or self.rows) // _STRETCHES)

    @property
    def _size(self) -> int:
        return self._stretch * _STRETCHES

    def numbers(self, epoch: int, begin: int, end: int) -> Rows:
        """The row numbers at places `begin`..`end`-1 of an epoch."""
        if not self.windowed or begin == end:
            return permute(begin, end, self.rows, self.seed, epoch)
        windows = range(begin // self._size, -(-end // self._size))
        return np.concatenate([self._within(epoch, window, begin, end) for window in windows])

    def window_at(self, place: int) -> int:
        """The window in which a place lies."""
        return place // self._size

    def stretches(self, epoch: int, window: int) -> list[tuple[int, int]]:
        """First row, and the row after the last, of the stretches in a window; none where there is no such window."""
        places = np.arange(window * self._size, min((window + 1) * self._size, self.rows), self._stretch)
        if not places.size:
            return []
        begins = self._at(epoch, places)
        ends = begins + np.minimum(self._stretch, self.rows - places)
        over = [(0, int(end) - self.rows) for end in ends if end > self.rows]
        return [*zip(begins.tolist(), np.minimum(ends, self.rows).tolist(), strict=True), *over]

    def _within(self, epoch: int, window: int, begin: int, end: int) -> Rows:
        """The row numbers at those of the places that lie in one window."""
        first = window * self._size
        held = min(self._size, self.rows - first)
        other = epoch + (window + 1) * _FAR  # every window has an order of its own
        inside = permute(max(begin - first, 0), min(end - first, held), held, self.seed, other)
        return self._at(epoch, first + inside)

    def _at(self, epoch: int, places: Rows) -> Rows:
        """The row numbers at places of the order in which stretches are whole; a shorter one comes last."""
        whole = self.rows // self._stretch
        ordinals = places // self._stretch
        first, last = int(ordinals.min()), int(ordinals.max())
        order = np.append(permute(first, min(last + 1, whole), whole, self.seed, epoch), whole)
        shift = permute(0, 1, self.rows, self.seed, epoch)
        return (order[ordinals - first] * self._stretch + places % self._stretch + shift) % self.rows
