"""Writing tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from lanner.embedding import optimizers
from lanner.embedding.dynamic.counters import Counters
from lanner.embedding.dynamic.table import DynamicTable
from lanner.embedding.persistence import description as descriptions
from lanner.embedding.persistence import files
from lanner.embedding.persistence.description import FORMAT, Description, Entry
from lanner.embedding.persistence.gathering import Holders
from lanner.embedding.persistence.layout import (
    DELETED,
    KEY,
    WAITING,
    Array,
    Block,
    block_of,
    chosen,
    directory_of,
    form_of,
)
from lanner.errors import DataError

if TYPE_CHECKING:
    from lanner.embedding.collection import EmbeddingCollection


def dump(
    collection: EmbeddingCollection, path: str | os.PathLike[str], table_names: Sequence[str] | None = None
) -> None:
    """Write the tables called `table_names` (default: all), weights and optimizer state.

    With several processes all must call it, and the first writes. An error in one is raised in all.
    """
    peers = Holders(collection.wire)
    for name in peers.together(lambda: chosen(collection, table_names)):
        _Leaving(collection, peers, name).write(directory_of(path, name))


def dump_delta(
    collection: EmbeddingCollection,
    path: str | os.PathLike[str],
    parent: str | os.PathLike[str],
    table_names: Sequence[str] | None = None,
) -> None:
    """Write what changed in the tables called `table_names` (default: all) since the dump `parent` was begun.

    `parent` is a full dump or a delta of this collection. The layout is that of a full dump, with the rows that
    changed, and a file `deleted` (int64) of the keys that left. Raises DataError or ConfigError where it is not known
    what changed since; then a full dump begins a new chain. With several processes all must call it.
    """
    peers = Holders(collection.wire)
    names = peers.together(lambda: chosen(collection, table_names))
    parents = peers.together(lambda: {name: _parent(collection, path, parent, name) for name in names})
    for name in names:
        _Leaving(collection, peers, name, parents[name]).write(directory_of(path, name))


def _parent(
    collection: EmbeddingCollection, path: str | os.PathLike[str], parent: str | os.PathLike[str], name: str
) -> Description:
    """The description of the table in the parent, checked against the collection's table."""
    found, where = descriptions.read(parent, name), descriptions.where(parent, name)
    if os.fspath(path).rstrip("/") == os.fspath(parent).rstrip("/"):
        raise DataError(f"{where}: a delta cannot be written over its own parent")
    _require_no_ancestor(path, name, found)
    own: dict[str, Any] = {"dim": collection.config(name).dim, "dynamic": collection.config(name).rows == "dynamic"}
    own["optimizer"] = optimizers.describe(collection.table_optimizer(name))
    for key, value in own.items():
        if (stored := getattr(found, key)) != value:
            raise DataError(f"{where}: {key} is {stored!r}, the model has {value!r}: not a dump of this collection")
    if found.steps > collection.steps:
        raise DataError(f"{where}: it is of step {found.steps}, the model is at step {collection.steps} only")
    return found


def _require_no_ancestor(path: str | os.PathLike[str], name: str, parent: Description) -> None:
    """Raise DataError where the table in `path` is one that a delta after `parent` goes on top of."""
    try:
        there = descriptions.read(path, name)
    except DataError:
        return  # nothing, or nothing that can be read
    base = parent.base or parent.identity
    if base in (there.identity, there.base) and there.sequence <= parent.sequence:
        what = f"delta {there.sequence}" if there.sequence else "the full dump"
        raise DataError(
            f"{descriptions.where(path, name)}: this is {what} that delta {parent.sequence + 1} goes on top of; "
            "expected another path"
        )


class _Leaving:
    """A table on its way into its directory: all of it, or what changed since `parent`."""

    def __init__(
        self, collection: EmbeddingCollection, peers: Holders, name: str, parent: Description | None = None
    ) -> None:
        self._collection, self._peers, self._name = collection, peers, name
        self._config = collection.config(name)
        self._dim, self._dynamic = self._config.dim, self._config.rows == "dynamic"
        self._optimizer, self._groups = collection.table_optimizer(name), collection.groups(name)
        self._steps = collection.steps  # of before the first row is read: what changes meanwhile is newer
        self._parent, self._rows = parent, 0

    def write(self, directory: str) -> None:
        """Write the files, and the description when they are complete."""
        self._peers.first(lambda: files.clear(directory))
        with files.Output() as output:
            form = form_of(self._optimizer, self._dim, self._dynamic)
            others = (DELETED if self._parent else {}) | (WAITING if self._dynamic else {})
            self._peers.first(lambda: output.open(directory, form | others))
            if self._parent:  # first: a key that comes back meanwhile is among the rows then, or in the next delta
                self._peers.gather(self._deleted(), self._groups[:1], DELETED, output.append)
            self._write_rows(output)
            if self._dynamic:
                self._peers.gather(self._waiting(), self._groups[:1], WAITING, output.append)
            entries = self._peers.first(output.close) or {}
        description = self._description(entries)
        self._peers.first(lambda: description.write(directory))

    def _description(self, entries: dict[str, Entry]) -> Description:
        chain: dict[str, Any] = {}
        if self._parent:
            chain = {"kind": "delta", "base": self._parent.base or self._parent.identity}
            chain |= {"parent": self._parent.identity, "since": self._parent.steps}
            chain["sequence"] = self._parent.sequence + 1
        return Description(
            format=FORMAT,
            table=self._name,
            rows=self._rows,
            dim=self._dim,
            dynamic=self._dynamic,
            dtype="float32",
            optimizer=optimizers.describe(self._optimizer),
            steps=self._steps,
            counters=self._counters() if self._dynamic else None,
            default=None if self._config.dynamic is None else self._config.dynamic.default,
            files=entries,
            **chain,
        )

    def _write_rows(self, output: files.Output) -> None:
        def append(block: Block) -> None:
            output.append(block)
            self._rows += len(block[KEY])

        part = form_of(self._optimizer, self._dim // len(self._groups), self._dynamic)
        self._peers.gather(self._blocks(), self._groups, part, append)

    def _blocks(self) -> Iterator[Block]:
        if self._name in self._collection.shards:
            since = self._parent.steps if self._parent else None
            yield from map(block_of, self._collection.blocks(self._name, since))

    def _deleted(self) -> Iterator[Block]:
        """One block of the keys that left here."""
        store = self._collection.store(self._name)
        if self._parent and store is not None:
            yield {name: np.sort(store.deleted_since(self._name, self._parent.steps)) for name in DELETED}

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
