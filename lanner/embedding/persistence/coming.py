"""`Coming`: a stored table on its way into a collection."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lanner.embedding import optimizers
from lanner.embedding.dynamic.counters import Counters
from lanner.embedding.dynamic.table import DynamicTable
from lanner.embedding.persistence import description as descriptions
from lanner.embedding.persistence import files
from lanner.embedding.persistence.description import Description
from lanner.embedding.persistence.layout import (
    DELETED,
    KEY,
    STATE,
    WAITING,
    WEIGHTS,
    Array,
    Block,
    Form,
    directory_of,
    form_of,
    rows_of,
    weights_form,
)
from lanner.errors import DataError

if TYPE_CHECKING:
    from lanner.embedding.collection import EmbeddingCollection

_MOST_HALF = 65504.0  # the largest number of 16 bits in IEEE 754


class Coming:
    """The table `name` of the dump `path`, which `description` describes, and where it goes."""

    def __init__(
        self,
        collection: EmbeddingCollection,
        path: str | os.PathLike[str],
        description: Description,
        name: str,
        optimizer_state: bool,
    ) -> None:
        self._collection, self._config = collection, collection.config(name)
        self.description, self.name, self.optimizer_state = description, name, optimizer_state
        self._directory, self.where = directory_of(path, name), descriptions.where(path, name)

    @property
    def _form(self) -> Form:
        """The files of rows to be read."""
        if not self.optimizer_state:
            return weights_form(self._config.dim)
        optimizer = self._collection.table_optimizer(self.name)
        return form_of(optimizer, self._config.dim, self.description.dynamic)

    @property
    def _lists(self) -> list[Form]:
        """The files of keys beside the rows."""
        waiting = [WAITING] if self.description.dynamic and self.optimizer_state else []
        return waiting + ([DELETED] if self.description.kind == "delta" else [])

    def check(self) -> None:
        """Raise DataError where the description or the sizes of the files do not suit the collection."""
        found, config = self.description, self._config
        if found.dynamic != (config.rows == "dynamic"):
            stored, own = ("dynamic", "static") if found.dynamic else ("static", "dynamic")
            raise DataError(f"{self.where}: the stored table is {stored}, the model's is {own}")
        expected = {"dim": config.dim, "dtype": "float32"}
        if found.kind == "full" and not found.dynamic:
            expected["rows"] = config.static_rows
        for key, value in expected.items():
            if (stored := getattr(found, key)) != value:
                raise DataError(f"{self.where}: {key} is {stored!r}, the model expects {value!r}")
        if self.optimizer_state:
            self._check_optimizer()
        files.check_sizes(self.where, self._directory, self._form, found.files, found.rows)
        for form in self._lists:
            first = found.files.get(next(iter(form)))
            files.check_sizes(self.where, self._directory, form, found.files, first.size // 8 if first else 0)

    def _check_optimizer(self) -> None:
        own = optimizers.describe(self._collection.table_optimizer(self.name))["name"]
        if (stored := self.description.optimizer["name"]) != own:
            raise DataError(
                f"{self.where}: stored with the state of optimizer {stored}, the model uses {own}; "
                "pass optimizer_state=False to load the weights alone"
            )

    def check_content(self) -> None:
        """Read everything and raise DataError for what `replace` and `apply` would raise it for."""
        for _ in self._blocks():
            pass
        for form in self._lists:
            files.read_whole(self.where, self._directory, form, self.description.files)

    def replace(self, steps: int) -> None:
        """Make the collection's table the stored one, as of after step number `steps`."""
        store = self._collection.store(self.name)
        if isinstance(store, DynamicTable):
            store.clear()
            store.reserve(self.description.rows // len(self._collection.groups(self.name)[0]))
        self.apply(steps)

    def apply(self, steps: int) -> None:
        """Put in what is stored, as of after step number `steps`. Processes without a part of the table do nothing."""
        store = self._collection.store(self.name)
        if store is None:
            return
        if isinstance(store, DynamicTable) and DELETED in self._lists:
            deleted = files.read_whole(self.where, self._directory, DELETED, self.description.files)
            store.erase(deleted["deleted"])
        for block in self._blocks():
            self._collection.place(self.name, rows_of(block))
        if isinstance(store, DynamicTable) and self.optimizer_state:
            self._continue(store)
        store.restored(self.name, steps)

    def _continue(self, store: DynamicTable) -> None:
        """What a dynamic table keeps beside its rows."""
        shard = self._collection.shards[self.name]
        waiting = files.read_whole(self.where, self._directory, WAITING, self.description.files)
        own = shard.holds(waiting["waiting.key"])
        store.wait(*(waiting[name][own] for name in WAITING))
        counters = Counters(**(self.description.counters or {})) if shard.share == 0 else Counters()
        store.counters = replace(counters, inserted=len(store) + counters.evicted + counters.expired + counters.erased)

    def _blocks(self) -> Iterator[Block]:
        """The blocks of rows, checked."""
        last: int | None = None
        for block in files.blocks(self.where, self._directory, self._form, self.description.files):
            last = self._check_keys(block[KEY], last)
            for name, values in block.items():
                if self.optimizer_state and (name == WEIGHTS or name.startswith(STATE)):
                    self._check_values(name, values, block[KEY])
            yield block

    def _check_keys(self, keys: Array, last: int | None) -> int:
        """`last` is the key before these, None for none; returns the last of these."""
        rows = None if self.description.dynamic else self._config.static_rows
        if rows is None or self.description.kind == "full":
            return files.check_keys(self.where, keys, last, rows)
        last = files.check_keys(self.where, keys, last, None)
        if not (keys[0] >= 0 and last < rows):
            raise DataError(f"{self.where}: key holds {keys[0]} to {last}, the table has the rows 0..{rows - 1}")
        return last

    def _check_values(self, name: str, values: Array, keys: Array) -> None:
        """What training goes on from must be finite; whoever only looks up sees what was stored."""
        half = name == WEIGHTS and self._config.dtype == "fp16"
        fine = np.abs(values) <= _MOST_HALF if half else np.isfinite(values)
        if not fine.all():
            at = int(np.argmin(fine.reshape(len(keys), -1).all(1)))
            bad = values[at][~fine[at]].reshape(-1)[0]
            raise DataError(f"{self.where}: {name} of key {keys[at]} holds {bad}, expected finite numbers")
