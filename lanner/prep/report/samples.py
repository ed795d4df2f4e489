"""What is kept of a stream of rows in bounded memory, the same however the stream is cut into batches."""

from __future__ import annotations

import numpy as np


class Sample:
    """Rows 0, s, 2s, ... of a stream, where s is the least power of two with which at most `limit` are kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[np.ndarray] = []
        self._held, self._stride = 0, 1
        self.seen = 0

    def add(self, values: np.ndarray) -> None:
        """Take in the next rows [n, ...]."""
        taken = values[-self.seen % self._stride :: self._stride].copy()
        self.seen += len(values)
        if len(taken):
            self._parts.append(taken)
            self._held += len(taken)
        while self._held > self._limit:
            self._parts = [np.concatenate(self._parts)[::2].copy()]
            self._held, self._stride = len(self._parts[0]), 2 * self._stride

    @property
    def values(self) -> np.ndarray:
        """The rows kept, in order."""
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0] if self._parts else np.zeros(0)


class Timeline:
    """Sums of the columns of a stream over stretches of equally many rows, at most `MOST` of them."""

    MOST = 64

    def __init__(self, columns: int) -> None:
        self.width = 16
        self.rows = 0
        self._sums = np.zeros((0, columns))

    def add(self, values: np.ndarray) -> None:
        """Take in the next rows [n, columns]."""
        if not len(values):
            return
        first, end = self.rows, self.rows + len(values)
        begin = np.arange(first // self.width, -(-end // self.width))
        sums = np.add.reduceat(values.astype(np.float64), np.maximum(begin * self.width - first, 0), axis=0)
        whole = np.zeros((begin[-1] + 1, values.shape[1]))
        whole[: len(self._sums)] = self._sums
        whole[begin[0] :] += sums
        self._sums, self.rows = whole, end
        while len(self._sums) > self.MOST:
            pairs = np.zeros((-(-len(self._sums) // 2), 2, values.shape[1]))
            pairs.reshape(2 * len(pairs), values.shape[1])[: len(self._sums)] = self._sums
            self._sums, self.width = pairs.sum(axis=1), 2 * self.width

    @property
    def total(self) -> np.ndarray:
        """Sums over all rows [columns]."""
        sums: np.ndarray = self._sums.sum(axis=0)
        return sums

    @property
    def means(self) -> np.ndarray:
        """Means of each stretch of `width` rows (the last may be shorter) [stretches, columns]."""
        rows = np.full(len(self._sums), self.width)
        if len(rows):
            rows[-1] = self.rows - self.width * (len(rows) - 1)
        means: np.ndarray = self._sums / rows[:, None]
        return means
