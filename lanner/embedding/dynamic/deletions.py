"""`Deletions`: the keys that left a table, by step."""

from __future__ import annotations

from collections import deque

import numpy as np

from lanner.errors import DataError


class Deletions:
    """A log of at most about `limit` keys; of a longer one the oldest steps are dropped."""

    def __init__(self, name: str, limit: int, begins: int = -1) -> None:
        """Nothing is known of steps up to `begins`."""
        self._name, self._limit = name, limit
        self._log: deque[tuple[int, np.ndarray]] = deque()
        self._count = 0
        self._dropped = begins  # the last step of which keys are missing

    def add(self, step: int, keys: np.ndarray) -> None:
        """Note that `keys` were deleted in `step`."""
        if not len(keys):
            return
        self._log.append((step, keys))
        self._count += len(keys)
        while self._count > self._limit:
            self._dropped, gone = self._log.popleft()
            self._count -= len(gone)

    def since(self, step: int) -> np.ndarray:
        """Distinct keys, int64, deleted after step `step`; some may have come back since.

        Raises DataError when the log does not reach back so far.
        """
        if self._dropped > step:
            raise DataError(
                f"table {self._name!r}: the keys deleted after step {step} are no longer all known, those up to step "
                f"{self._dropped} are forgotten; dump the whole table"
            )
        recent = [keys for when, keys in self._log if when > step]
        return np.unique(np.concatenate(recent)) if recent else np.empty(0, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return 8 * self._count
