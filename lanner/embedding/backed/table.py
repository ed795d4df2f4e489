"""`BackedTable`: one static table that lives on disk, its rows in use in memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lanner.embedding import initializers
from lanner.embedding.absence import Absence
from lanner.embedding.backed.cache import RowCache, room_for
from lanner.embedding.backed.config import Backing
from lanner.embedding.backed.holds import Hold, Holds
from lanner.embedding.backed.rowfile import RowFile
from lanner.embedding.backed.traffic import Traffic
from lanner.embedding.optimizers import Optimizer
from lanner.embedding.rounding import names_of
from lanner.embedding.steps import step_of
from lanner.embedding.store import Rows
from lanner.embedding.tables import TableConfig
from lanner.errors import ConfigError, DataError
from lanner.kernels.memory import zeros
from lanner.kernels.update import Step

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_CARRIERS = {"fp32": "float32", "fp16": "int16", "bf16": "int16"}  # NumPy has no bfloat16
_WEIGHTS = "weights"


class BackedTable:
    """A `Store` of one table with row numbers for ids, which gives the rows that are in memory numbers of their own.

    Rows, their first values and the steps taken on them are those of a `JointTable` with the same configuration. Look
    rows up under a `hold`: without one they stay only until others are asked for. One thread trains.
    """

    keyed = True
    absence: Absence | None = None

    def __init__(
        self,
        table: TableConfig,
        optimizer: Optimizer,
        seed: int,
        memory: int,
        directory: str | None = None,
        track: bool = False,
    ) -> None:
        """Takes at most `memory` bytes; with `track`, steps of last change are kept by row, 4 bytes of it each.

        Raises ConfigError where that is too little, or `directory` (default: the system's temporary one) has no room.
        """
        self.table, self.seed, self.name = table, seed, table.name
        self.dim, self.own_optimizer, self.step, self.rows = table.dim, table.optimizer, 1, table.static_rows
        self._changed = zeros(self.rows, np.int32) if track else None
        self._known_since = 0
        self._memory, self._directory = memory - (4 * self.rows if track else 0), directory or tempfile.gettempdir()
        self._open(table.optimizer or optimizer)

    def _open(self, optimizer: Optimizer) -> None:
        """Begin with a new file and an empty cache."""
        if Absence.of(optimizer) is not None:
            raise ConfigError(
                f"table {self.name!r} lives on disk: {type(optimizer).__name__} has mode 'global', which moves rows "
                "that do not occur, so that all of them are read and written for every evaluation; expected 'lazy'"
            )
        record = record_of(self.table, optimizer)
        slots, chunk = room_for(self.name, self.rows, record, self._memory)
        states = {name: state.initial for name, state in optimizer.row_states(self.dim).items()}
        fresh = partial(_fresh, self.table, self.seed, states)
        self._cache = RowCache(RowFile(self.name, self.rows, record, self._directory, fresh), slots, chunk)
        self._holds, self._chunk, self.optimizer = Holds(self.name, self._cache), chunk, optimizer
        tensors = {name: torch.from_numpy(array) for name, array in self._cache.arrays.items()}
        self.weights: Tensor = tensors.pop(_WEIGHTS).view(_DTYPES[self.table.dtype])
        self.states: dict[str, Tensor] = tensors
        self.names = names_of([self.table], self.spans, self.seed)._replace(keys=torch.from_numpy(self._cache.keys))

    @property
    def spans(self) -> dict[str, slice]:
        """All rows: those in memory have lower numbers in any case."""
        return {self.name: slice(0, self.rows)}

    @property
    def tracks_changes(self) -> bool:
        """Whether `blocks` can tell what changed since a step."""
        return self._changed is not None

    def hold(self, rows: np.ndarray, training: bool) -> Hold:
        """Begin to bring rows int64 [n] into memory, repeated ones included, which must be in the table.

        Returns at once. In training, rows that are used again stay longest; without, what is brought in leaves again
        with the hold.
        """
        return self._holds.begin(rows, training)

    def rows_of(self, table: str, keys: np.ndarray, training: bool, times: np.ndarray | None = None) -> np.ndarray:
        """Where rows are in memory, int64 [n], until others are asked for."""
        return self.hold(keys, training).rows()

    def numbers(self, count: int, learning_rate_scale: float, gradient_scale: float) -> Step:
        """The numbers of step number `count` (from 1) for the kernels."""
        return step_of(self.optimizer, count, learning_rate_scale, gradient_scale)

    def catch_up(self, rows: np.ndarray | None = None) -> None:
        """Nothing: rows that do not occur stay as they are."""

    def continue_after(self, step: int) -> None:
        """Nothing; see `catch_up`."""

    def changed_rows(self, rows: np.ndarray, count: int) -> None:
        """Note that step number `count` changed the rows that are at `rows` in memory, under a hold."""
        self._cache.stain(rows)
        if self._changed is not None:
            self._changed[self._cache.keys[rows]] = count
        self.step = count + 1

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Use `optimizer` from now on, with fresh state: rows that were trained are written anew.

        Raises ConfigError where rows are held, since they would not be where they were.
        """
        old, thread = self._cache, self._holds
        if held := thread.held():
            raise ConfigError(
                f"table {self.name!r}: {held:,} rows are held for batches that are prepared, or whose steps are not "
                "taken; take or drop them before another optimizer is set"
            )
        self._open(optimizer)
        if thread.run(old.untouched):
            return
        for keys in self._parts():
            keys = keys[thread.run(partial(old.touched, keys))]
            content = self._cache.file.read(keys)
            content[_WEIGHTS] = thread.run(partial(old.read, keys))[_WEIGHTS]
            self._cache.file.write(keys, content)

    def nbytes(self) -> int:
        """Bytes of memory held, index and bookkeeping included, once the cache is full."""
        return self._cache.nbytes() + (0 if self._changed is None else self._changed.nbytes)

    def disk_bytes(self) -> int:
        """Bytes of disk taken so far."""
        return self._cache.file.disk_bytes()

    @property
    def traffic(self) -> Traffic:
        """What went between disk and memory so far."""
        cache, file = self._cache, self._cache.file
        return Traffic(cache.asked, cache.missed, file.rows_read, file.rows_written)

    def blocks(self, table: str, since: int | None = None) -> Iterator[Rows]:
        """All rows in order, or those that changed after step `since`, a part of the memory budget at a time.

        Raises ConfigError where changes are not tracked, DataError where they are, but not from `since` on.
        """
        for keys in self._parts():
            if since is not None:
                keys = keys[self._changes(since)[keys] > since]
            content = self._holds.run(partial(self._cache.read, keys))
            weights = torch.from_numpy(np.ascontiguousarray(content[_WEIGHTS])).view(self.weights.dtype).float()
            yield Rows(keys, weights.numpy(), {name: np.ascontiguousarray(content[name]) for name in self.states})

    def _changes(self, since: int) -> np.ndarray:
        """By row, the step of the last change."""
        if self._changed is None:
            raise ConfigError(
                f"table {self.name!r}: changes are not tracked; make the collection with track_changes=True"
            )
        if since < self._known_since:
            raise DataError(
                f"table {self.name!r}: changes are known since step {self._known_since}, not since {since}; "
                "dump it whole"
            )
        return self._changed

    def place(self, table: str, rows: Rows) -> None:
        """Overwrite rows by number. Raises DataError for numbers that come twice or are not in the table."""
        order = np.argsort(rows.keys, kind="stable")
        keys = rows.keys[order]
        if len(keys) and (keys[0] < 0 or keys[-1] >= self.rows or (keys[1:] == keys[:-1]).any()):
            raise DataError(f"table {self.name!r}: rows to put in are not distinct numbers of its {self.rows:,} rows")
        for begin in range(0, len(keys), self._chunk):
            part = slice(begin, begin + self._chunk)
            values = {name: each[order[part]] for name, each in rows.states.items()}
            values[_WEIGHTS] = rounded(rows.weights[order[part]], self.table)
            self._holds.run(partial(self._overwrite, keys[part], values))
        if self._changed is not None:
            self._changed[keys] = self.step

    def _overwrite(self, keys: np.ndarray, values: dict[str, np.ndarray]) -> None:
        content = self._cache.read(keys)
        for name, each in values.items():
            content[name] = each
        self._cache.write(keys, content)

    def restored(self, table: str, step: int) -> None:
        """Rows are as of after step number `step`."""
        self.step, self._known_since = step + 1, step
        if self._changed is not None:
            self._changed.fill(0)

    def deleted_since(self, table: str, step: int) -> np.ndarray:
        """None: rows of a static table stay."""
        return np.empty(0, np.int64)

    def _parts(self) -> Iterator[np.ndarray]:
        """All rows, so many at a time as may be on the way."""
        for begin in range(0, self.rows, self._chunk):
            yield np.arange(begin, min(begin + self._chunk, self.rows))

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(f"table {self.name!r} lives on disk and cannot be copied; dump it and load the dump")


def record_of(table: TableConfig, optimizer: Optimizer) -> np.dtype[np.void]:
    """What the file holds of a row: weights, then the optimizer's states by name."""
    states = [(name, state.dtype, state.shape) for name, state in optimizer.row_states(table.dim).items()]
    return np.dtype([(_WEIGHTS, _CARRIERS[table.dtype], (table.dim,)), *states])


def rounded(weights: np.ndarray, table: TableConfig) -> np.ndarray:
    """Float32 weights in the table's format, as its records carry them."""
    tensor = torch.from_numpy(np.ascontiguousarray(weights, np.float32)).to(_DTYPES[table.dtype])
    carried: np.ndarray = (tensor if table.dtype == "fp32" else tensor.view(torch.int16)).numpy()
    return carried


def _fresh(table: TableConfig, seed: int, states: dict[str, float], rows: np.ndarray, content: np.ndarray) -> None:
    """First values and fresh state; see `lanner.embedding.backed.rowfile.Fresh`."""
    values = np.empty((len(rows), table.dim), np.float32)
    initializer = table.initializer or initializers.default(table.static_rows)
    initializers.fill_keys(values, initializer, table.name, seed, rows)
    content[_WEIGHTS] = rounded(values, table)
    for name, initial in states.items():
        content[name] = initial


def allocate(
    tables: Sequence[TableConfig], optimizer: Optimizer, seed: int, track: bool, backing: Backing
) -> list[BackedTable]:
    """Those of the static `tables` that `backing` has on disk."""
    chosen = backing.chosen(tables)
    memory = backing.shares(tables, chosen)
    directory = None if backing.directory is None else os.fspath(backing.directory)
    return [
        BackedTable(table, optimizer, seed, memory[table.name], directory, track)
        for table in tables
        if table.name in chosen
    ]
