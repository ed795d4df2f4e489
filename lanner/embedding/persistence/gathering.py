"""`Holders`: the processes that hold a table together, and how its rows reach the one that writes them.

Every process has its rows in rising order of keys, in blocks. In each round all say how far the block at hand reaches,
and send what lies below the lowest of these ends; so the first process can put the rows in order while it holds no more
than one block from each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from lanner.embedding.persistence.layout import Array, Block, Form
from lanner.embedding.sharding.peers import Peers
from lanner.errors import DataError

Groups = Sequence[Sequence[int]]
"""For each block of columns of a table, the ranks that share its rows."""


class Holders(Peers):
    """The processes that hold a table; see the module."""

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
