"""Writing tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

import numpy as np

from lanner import storage
from lanner.embedding import optimizers
from lanner.embedding.dynamic.counters import Counters
from lanner.embedding.dynamic.table import DynamicTable
from lanner.embedding.persistence import files
from lanner.embedding.persistence.description import FORMAT, Description
from lanner.embedding.persistence.gathering import Peers
from lanner.embedding.persistence.layout import KEY, WAITING, Array, Block, block_of, chosen, form_of

if TYPE_CHECKING:
    from lanner.embedding.collection import EmbeddingCollection


def dump(
    collection: EmbeddingCollection, path: str | os.PathLike[str], table_names: Sequence[str] | None = None
) -> None:
    """Write the tables called `table_names` (default: all), weights and optimizer state.

    With several processes all must call it, and the first writes. An error in one is raised in all.
    """
    peers = Peers(collection.wire)
    for name in peers.together(lambda: chosen(collection, table_names)):
        _Leaving(collection, peers, name).write(storage.join(path, name))


class _Leaving:
    """A table on its way into its directory."""

    def __init__(self, collection: EmbeddingCollection, peers: Peers, name: str) -> None:
        self._collection, self._peers, self._name = collection, peers, name
        self._dim, self._dynamic = collection.config(name).dim, collection.config(name).rows == "dynamic"
        self._optimizer, self._groups = collection.table_optimizer(name), collection.groups(name)
        self._steps = collection.steps  # of before the first row is read: what changes meanwhile is newer
        self._rows = 0

    def write(self, directory: str) -> None:
        """Write it whole."""
        self._peers.first(lambda: files.clear(directory))
        with files.Output() as output:
            self._write_rows(directory, output)
            if self._dynamic:
                self._peers.first(lambda: output.open(directory, WAITING))
                self._peers.gather(self._waiting(), self._groups[:1], WAITING, output.append)
            entries = self._peers.first(output.close) or {}
        description = Description(
            format=FORMAT,
            table=self._name,
            rows=self._rows,
            dim=self._dim,
            dynamic=self._dynamic,
            dtype="float32",
            optimizer=optimizers.describe(self._optimizer),
            steps=self._steps,
            counters=self._counters() if self._dynamic else None,
            files=entries,
        )
        self._peers.first(lambda: description.write(directory))

    def _write_rows(self, directory: str, output: files.Output) -> None:
        self._peers.first(lambda: output.open(directory, form_of(self._optimizer, self._dim, self._dynamic)))

        def append(block: Block) -> None:
            output.append(block)
            self._rows += len(block[KEY])

        part = form_of(self._optimizer, self._dim // len(self._groups), self._dynamic)
        self._peers.gather(self._blocks(), self._groups, part, append)

    def _blocks(self) -> Iterator[Block]:
        if self._name in self._collection.shards:
            yield from map(block_of, self._collection.blocks(self._name))

    def _waiting(self) -> Iterator[Block]:
        """One block of the keys that wait here, in rising order."""
        store = self._collection.store(self._name)
        if isinstance(store, DynamicTable):
            columns = store.waiting()
            order = np.argsort(columns[0])
            yield {name: values[order] for name, values in zip(WAITING, columns, strict=True)}

    def _counters(self) -> dict[str, int]:
        """The sums over the rows of one block of columns; the others count the same."""
        names = [field.name for field in fields(Counters)]
        store = self._collection.store(self._name)

        def own() -> Sequence[int]:
            counts = isinstance(store, DynamicTable) and self._peers.rank in self._groups[0]
            return [asdict(store.counters)[name] for name in names] if counts else [0] * len(names)  # type: ignore[union-attr]

        sums: Array = self._peers.tell(own, len(names)).sum(0)
        return dict(zip(names, sums.tolist(), strict=True))
