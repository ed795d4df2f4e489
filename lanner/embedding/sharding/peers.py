"""`Peers`: doing something on all processes at once, so that what fails in one fails in all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from lanner.embedding.sharding.exchange import Array, Wire
from lanner.errors import LannerError

T = TypeVar("T")


class Peers:
    """All processes of a group (None: this one alone). Each must call the same methods in the same order."""

    def __init__(self, wire: Wire | None) -> None:
        self._wire = wire
        self.rank, self.world_size = (wire.rank, wire.world_size) if wire else (0, 1)

    def together(self, work: Callable[[], T]) -> T:
        """What `work` returns, once it is done everywhere; an error in one process is raised in all."""
        results: list[T] = []
        self.tell(lambda: results.append(work()) or ())  # type: ignore[func-returns-value]
        return results[0]

    def first(self, work: Callable[[], T]) -> T | None:
        """`together`, where the first process alone has work; None on the others."""
        return self.together(lambda: work() if self.rank == 0 else None)

    def tell(self, work: Callable[[], Sequence[int]], width: int = 0) -> Array:
        """The `width` numbers that `work` returns in each process, int64 [ranks, width]; see `together` for errors."""
        if self._wire is None:
            return np.array([work()], np.int64).reshape(1, width)
        failure, own = None, np.zeros(width + 1, np.int64)
        try:
            own[1:] = work()
        except Exception as error:
            failure, own[0] = error, 1
        told = self._wire.swap(np.tile(own, (self.world_size, 1)))
        if told[:, 0].any():
            texts = self._wire.messages("" if failure is None else str(failure) or repr(failure))
            if failure is not None:
                raise failure
            raise LannerError("; ".join(f"rank {rank}: {text}" for rank, text in enumerate(texts) if text))
        return told[:, 1:]
