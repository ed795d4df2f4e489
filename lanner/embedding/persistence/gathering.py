"""`Peers`: the processes that hold a table together, and how its rows reach the one that writes them.

Every process has its rows in rising order of keys, in blocks. In each round all say how far the block at hand reaches,
and send what lies below the lowest of these ends; so the first process can put the rows in order while it holds no more
than one block from each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch

from lanner.embedding.persistence.layout import Array, Block, Form
from lanner.embedding.sharding.exchange import Wire
from lanner.errors import DataError, LannerError

T = TypeVar("T")
Groups = Sequence[Sequence[int]]
"""For each block of columns of a table, the ranks that share its rows."""


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

    def gather(self, own: Iterator[Block], groups: Groups, form: Form, sink: Callable[[Block], None]) -> None:
        """Give `sink`, in the first process, all rows of a table in rising order of keys.

        `own` is the part of this process, `form` that of a row of one block of columns, the file of keys first.
        Only the ranks of `groups` have a say.
        """
        if self._wire is None:
            for block in own:
                sink(block)
            return
        record, key = np.dtype([(name, kind, shape) for name, (shape, kind) in form.items()]), next(iter(form))
        held, arrived = np.empty(0, record), [np.empty(0, record)] * self.world_size
        if not any(self.rank in group for group in groups):
            own = iter(())

        def proceed() -> tuple[int, int]:
            nonlocal held
            if self.rank == 0 and any(map(len, arrived)):
                sink(_merged(arrived, groups, key))
            while not len(held) and (block := next(own, None)) is not None:
                held = _packed(block, record, key)
            return len(held), int(held[key][-1]) if len(held) else 0

        while (ends := self.tell(proceed, 2))[:, 0].any():
            until = ends[ends[:, 0] > 0, 1].min()
            count = int(np.searchsorted(held[key], until, side="right"))
            arrived, held = self._to_first(held[:count]), held[count:]

    def _to_first(self, rows: Array) -> list[Array]:
        """The records of every process in the first one, nothing in the others."""
        assert self._wire is not None
        counts = np.zeros((self.world_size, 1), np.int64)
        counts[0] = len(rows)
        coming = self._wire.swap(counts)[:, 0]
        data = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), rows.dtype.itemsize)
        sent = self._wire.exchange(torch.from_numpy(data), counts[:, 0].tolist(), coming.tolist())
        pieces = np.split(sent.numpy(), np.cumsum(coming)[:-1])
        return [piece.reshape(-1).view(rows.dtype) for piece in pieces]


def _packed(block: Block, record: np.dtype[np.void], key: str) -> Array:
    rows = np.empty(len(block[key]), record)
    for name, values in block.items():
        rows[name] = values
    return rows


def _merged(pieces: Sequence[Array], groups: Groups, key: str) -> Block:
    """Rows of all columns, in order, from those of each rank."""
    parts = [np.concatenate([pieces[rank] for rank in group]) for group in groups]
    parts = [part[np.argsort(part[key], kind="stable")] for part in parts]
    first = parts[0]
    for part in parts[1:]:
        if not np.array_equal(part[key], first[key]):
            raise DataError("the processes that hold the columns of a table do not hold the same keys")
    wide = {name for name in first.dtype.names or () if first[name].ndim == 2}
    return {
        name: np.concatenate([part[name] for part in parts], axis=1) if name in wide else first[name]
        for name in first.dtype.names or ()
    }
