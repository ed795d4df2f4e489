"""Reading tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lanner import storage
from lanner.embedding import optimizers
from lanner.embedding.dynamic.counters import Counters
from lanner.embedding.dynamic.table import DynamicTable
from lanner.embedding.persistence import description as descriptions
from lanner.embedding.persistence import files
from lanner.embedding.persistence.description import Description
from lanner.embedding.persistence.gathering import Peers
from lanner.embedding.persistence.layout import (
    KEY,
    STATE,
    WAITING,
    WEIGHTS,
    Array,
    Block,
    Form,
    chosen,
    form_of,
    rows_of,
)
from lanner.errors import DataError

if TYPE_CHECKING:
    from lanner.embedding.collection import EmbeddingCollection

_MOST_HALF = 65504.0  # the largest number of 16 bits in IEEE 754


def load(
    collection: EmbeddingCollection,
    path: str | os.PathLike[str],
    table_names: Sequence[str] | None = None,
    optimizer_state: bool = True,
) -> None:
    """Read the tables called `table_names` (default: all) that `dump` wrote, by any number of processes.

    With `optimizer_state` everything that training needs is read too, and `steps` set; a dump by another optimizer,
    or without the state's files, is an error. Without, states of static tables are left as they are, and rows of
    dynamic ones start afresh. Raises DataError naming the table where anything is missing or differs in rows, width,
    size or checksum, or a value is not finite: all descriptions and sizes are checked before any table is changed,
    the rest as each file is read. With several processes all must call it; each keeps its part of what it reads. An
    error in one is raised in all.
    """
    peers = Peers(collection.wire)
    names = peers.together(lambda: chosen(collection, table_names))
    found = peers.together(lambda: {name: _described(collection, path, name, optimizer_state) for name in names})
    steps = max((each.steps for each in found.values()), default=0) if optimizer_state else collection.steps
    for name, description in found.items():
        coming = Coming(collection, path, description, name, optimizer_state)
        peers.together(partial(coming.replace, steps))
    if names:
        collection.steps = steps


def _described(
    collection: EmbeddingCollection, path: str | os.PathLike[str], name: str, optimizer_state: bool
) -> Description:
    """The description of a full dump that suits the collection."""
    description, where = descriptions.read(path, name), descriptions.where(path, name)
    if description.kind != "full":
        raise DataError(f"{where}: this is a {description.kind}, expected a full dump")
    config = collection.config(name)
    if description.dynamic != (config.rows == "dynamic"):
        stored, own = ("dynamic", "static") if description.dynamic else ("static", "dynamic")
        raise DataError(f"{where}: the stored table is {stored}, the model's is {own}")
    if not description.dynamic and description.rows != config.rows:
        raise DataError(f"{where}: rows is {description.rows}, the model expects {config.rows}")
    Coming(collection, path, description, name, optimizer_state).check()
    return description


class Coming:
    """A stored table on its way into a collection."""

    def __init__(
        self,
        collection: EmbeddingCollection,
        path: str | os.PathLike[str],
        description: Description,
        name: str,
        optimizer_state: bool,
    ) -> None:
        self._collection, self._description, self._name = collection, description, name
        self._directory, self._where = storage.join(path, name), descriptions.where(path, name)
        self._whole, self._config = optimizer_state, collection.config(name)

    @property
    def _form(self) -> Form:
        """The files to be read."""
        form = form_of(self._collection.table_optimizer(self._name), self._config.dim, self._description.dynamic)
        return form if self._whole else {name: form[name] for name in (KEY, WEIGHTS)}

    def check(self) -> None:
        """Raise DataError where the description or the sizes of the files do not suit the collection."""
        for key, expected in {"dim": self._config.dim, "dtype": "float32"}.items():
            if (stored := getattr(self._description, key)) != expected:
                raise DataError(f"{self._where}: {key} is {stored!r}, the model expects {expected!r}")
        if self._whole:
            own = optimizers.describe(self._collection.table_optimizer(self._name))["name"]
            if (stored := self._description.optimizer["name"]) != own:
                raise DataError(
                    f"{self._where}: stored with the state of optimizer {stored}, the model uses {own}; "
                    "pass optimizer_state=False to load the weights alone"
                )
        entries = self._description.files
        files.check_sizes(self._where, self._directory, self._form, entries, self._description.rows)
        if self._description.dynamic and self._whole:
            waiting = entries["waiting.key"].size // 8 if "waiting.key" in entries else 0
            files.check_sizes(self._where, self._directory, WAITING, entries, waiting)

    def replace(self, steps: int) -> None:
        """Make the collection's table the stored one, as of after step number `steps`."""
        store = self._collection.store(self._name)
        if store is None:  # nothing of it is held by this process
            return
        if isinstance(store, DynamicTable):
            store.clear()
        for block in self._blocks():
            self._collection.place(self._name, rows_of(block))
        if isinstance(store, DynamicTable) and self._whole:
            self._continue(store)
        store.restored(self._name, steps)

    def _blocks(self) -> Iterator[Block]:
        """The blocks of rows, checked."""
        last: int | None = None
        for block in files.blocks(self._where, self._directory, self._form, self._description.files):
            self._check_keys(block[KEY], last)
            last = int(block[KEY][-1])
            for name, values in block.items():
                if name == WEIGHTS or name.startswith(STATE):
                    self._check_values(name, values, block[KEY])
            yield block

    def _check_keys(self, keys: Array, last: int | None) -> None:
        """`last` is the key before these, None for none."""
        if not self._description.dynamic and self._description.kind == "full":
            if not np.array_equal(keys, np.arange(len(keys)) + (0 if last is None else last + 1)):
                rows = self._description.rows
                raise DataError(f"{self._where}: key does not count the rows 0..{rows - 1} in order")
        elif (keys[1:] <= keys[:-1]).any() or (last is not None and keys[0] <= last):
            raise DataError(f"{self._where}: the keys in key do not rise")

    def _check_values(self, name: str, values: Array, keys: Array) -> None:
        most = _MOST_HALF if name == WEIGHTS and self._config.dtype == "fp16" else np.inf
        fine = np.isfinite(values) if most == np.inf else np.abs(values) <= most
        if not fine.all():
            at = int(np.argmin(fine.reshape(len(keys), -1).all(1)))
            bad = values[at][~fine[at]].reshape(-1)[0]
            raise DataError(f"{self._where}: {name} of key {keys[at]} holds {bad}, expected finite numbers")

    def _continue(self, store: DynamicTable) -> None:
        """What a dynamic table keeps beside its rows."""
        shard, description = self._collection.shards[self._name], self._description
        for block in files.blocks(self._where, self._directory, WAITING, description.files):
            own = shard.holds(block["waiting.key"])
            store.wait(*(block[name][own] for name in WAITING))
        counters = Counters(**(description.counters or {})) if shard.share == 0 else Counters()
        store.counters = replace(counters, inserted=len(store) + counters.evicted + counters.expired + counters.erased)
