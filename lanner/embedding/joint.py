"""`JointTable`: static tables of one width, format and optimizer, in one allocation, with their optimizer state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lanner.embedding import initializers
from lanner.embedding.absence import Absence
from lanner.embedding.device import HOST
from lanner.embedding.optimizers import Optimizer
from lanner.embedding.rounding import names_of
from lanner.embedding.steps import step_of
from lanner.embedding.store import Rows
from lanner.embedding.tables import TableConfig
from lanner.errors import ConfigError, DataError
from lanner.kernels import memory
from lanner.kernels.update import Step

FORMATS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_BLOCK = 1 << 22  # bytes of rows handed out at once
_CARRIERS = {torch.float16: torch.int16, torch.bfloat16: torch.int16}  # what NumPy sees of the formats it lacks


class JointTable:
    """Tables lying one after another in one array [rows, dim] on `device`; a `Store` whose ids are row numbers."""

    keyed = False

    def __init__(
        self,
        tables: Sequence[TableConfig],
        optimizer: Optimizer,
        seed: int,
        track: bool = False,
        device: torch.device = HOST,
    ) -> None:
        """Raises ConfigError where there is no memory for it. With `track`, steps of last change are kept by row."""
        self.dim, self.own_optimizer, self.step = tables[0].dim, tables[0].optimizer, 1
        self.spans: dict[str, slice] = {}
        rows = 0
        for table in tables:
            self.spans[table.name] = slice(rows, rows + table.static_rows)
            rows += table.static_rows
        self.names = names_of(tables, self.spans, seed)
        self.weights = _zeros((rows, self.dim), FORMATS[tables[0].dtype], device)
        self._changed = _zeros((rows,), torch.int32, HOST).numpy() if track else None
        self._known_since = dict.fromkeys(self.spans, 0)
        for table in tables:
            self._fill(table, seed)
        self.set_optimizer(self.own_optimizer or optimizer)

    def _fill(self, table: TableConfig, seed: int) -> None:
        """First values, computed in float32 on the host."""
        weights = self.weights[self.spans[table.name]]
        if weights.dtype is torch.float32 and weights.device == HOST:
            initializers.fill(weights.numpy(), table.initializer, table.name, len(weights), seed)
            return
        for begin, end in _slices(len(weights), self.dim):
            block = np.empty((end - begin, self.dim), np.float32)
            initializers.fill(block, table.initializer, table.name, len(weights), seed, begin)
            weights[begin:end] = torch.from_numpy(block)

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Use `optimizer` from now on, with fresh state."""
        self.optimizer, self.absence, rows = optimizer, Absence.of(optimizer), self.weights.shape[0]
        self.states: dict[str, Tensor] = {}
        for name, state in optimizer.row_states(self.dim).items():
            values = _zeros((rows, *state.shape), getattr(torch, state.dtype), self.weights.device)
            self.states[name] = values.fill_(state.initial) if state.initial else values

    def move(self, device: torch.device) -> None:
        """Have weights and state on `device`."""
        self.weights = _copy(self.weights, device)
        self.states = {name: _copy(state, device) for name, state in self.states.items()}

    def numbers(self, count: int, learning_rate_scale: float, gradient_scale: float) -> Step:
        """The numbers of step number `count` (from 1) for the kernels."""
        return step_of(self.optimizer, count, learning_rate_scale, gradient_scale)

    def rows_of(self, table: str, keys: np.ndarray, training: bool, times: np.ndarray | None = None) -> np.ndarray:
        """The keys: they are row numbers."""
        return keys

    def catch_up(self, rows: np.ndarray | None = None) -> None:
        """Let rows, or all, take the steps that they missed."""
        if self.absence is None:
            return
        everything = self.absence.catch_up_all(self, len(self.weights))
        moved = everything if rows is None else [self.absence.catch_up(self, rows)]
        for each in moved:
            if self._changed is not None:
                self._changed[each] = self.absence.taken

    def continue_after(self, step: int) -> None:
        """Have all rows be as of after step number `step`."""
        if self.absence is not None:
            self.catch_up()
            self.absence.jump(self.states, len(self.weights), step)

    def changed_rows(self, rows: np.ndarray, count: int) -> None:
        """Note that step number `count` changed `rows`."""
        if self.absence is not None:
            self.absence.mark(self.states, rows)
        if self._changed is not None:
            self._changed[rows] = count
            self.step = count + 1

    @property
    def tracks_changes(self) -> bool:
        """Whether `blocks` can tell what changed since a step."""
        return self._changed is not None

    def nbytes(self) -> int:
        """Bytes of weights and state."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (self.weights, *self.states.values()))

    def blocks(self, table: str, since: int | None = None) -> Iterator[Rows]:
        """All rows of a table in order, or those that changed after step `since`.

        Raises ConfigError where changes are not tracked, DataError where they are, but not from `since` on.
        """
        self.catch_up()
        span = self.spans[table]
        for begin, end in _slices(span.stop - span.start, self.dim):
            at: slice | Tensor = slice(span.start + begin, span.start + end)
            keys = np.arange(begin, end)
            if since is not None:
                keys = begin + np.flatnonzero(self._changes(table, since)[at] > since)
                at = torch.from_numpy(keys + span.start)
            states = {name: state[at].cpu().numpy() for name, state in self.states.items()}
            yield Rows(keys, self.weights[at].cpu().float().numpy(), states)

    def _changes(self, table: str, since: int) -> np.ndarray:
        """By row, the step of the last change."""
        if self._changed is None:
            raise ConfigError(f"table {table!r}: changes are not tracked; make the collection with track_changes=True")
        if since < (known := self._known_since[table]):
            raise DataError(f"table {table!r}: changes are known since step {known}, not since {since}; dump it whole")
        return self._changed

    def place(self, table: str, rows: Rows) -> None:
        """Overwrite rows by number."""
        first = self.spans[table].start
        self.catch_up(rows.keys + first)  # what was there before is as of now, where it stays
        at: slice | Tensor = torch.from_numpy(rows.keys + first)
        if len(rows.keys) and np.array_equal(rows.keys, np.arange(rows.keys[0], rows.keys[0] + len(rows.keys))):
            at = slice(first + int(rows.keys[0]), first + int(rows.keys[-1]) + 1)  # several times as fast
        for into, values in ((self.weights, rows.weights), *((self.states[n], v) for n, v in rows.states.items())):
            into[at] = torch.from_numpy(np.ascontiguousarray(values)).to(into)
        if self.absence is not None:
            self.absence.settle(self.states, rows.keys + first)
        if self._changed is not None:
            self._changed[at] = self.step

    def restored(self, table: str, step: int) -> None:
        """Rows are as of after step number `step`."""
        self.continue_after(step)
        self.step, self._known_since[table] = step + 1, step
        if self._changed is not None:
            self._changed[self.spans[table]] = 0

    def deleted_since(self, table: str, step: int) -> np.ndarray:
        """None: rows of a static table stay."""
        return np.empty(0, np.int64)

    def __getstate__(self) -> dict[str, Any]:
        weights = self.weights.view(_CARRIERS.get(self.weights.dtype, self.weights.dtype)).cpu().numpy()
        states = {name: state.cpu().numpy() for name, state in self.states.items()}
        return {**self.__dict__, "weights": (weights, self.weights.dtype, self.weights.device), "states": states}

    def __setstate__(self, values: dict[str, Any]) -> None:
        weights, dtype, device = values["weights"]
        self.__dict__.update(values)
        self.weights = _copy(torch.from_numpy(weights).view(dtype), device)
        self.states = {name: _copy(torch.from_numpy(state), device) for name, state in values["states"].items()}


def _slices(rows: int, dim: int) -> Iterator[tuple[int, int]]:
    step = max(_BLOCK // (4 * dim), 1)
    for begin in range(0, rows, step):
        yield begin, min(begin + step, rows)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros; on the host in memory on huge pages."""
    kind = str(_CARRIERS.get(dtype, dtype)).removeprefix("torch.")
    try:
        if device.type != "cpu":
            return torch.zeros(shape, dtype=dtype, device=device)
        return torch.from_numpy(memory.zeros(shape, kind)).view(dtype)
    except (OSError, MemoryError, OverflowError, ValueError, torch.OutOfMemoryError) as error:
        size = f"{math.prod(shape) * dtype.itemsize:,} bytes ({' x '.join(map(str, shape))} {kind})"
        place = "" if device.type == "cpu" else f" on {device}"
        raise ConfigError(
            f"embedding tables and their optimizer state need {size} at once{place}: out of memory"
        ) from error


def _copy(tensor: Tensor, device: torch.device) -> Tensor:
    return _zeros(tuple(tensor.shape), tensor.dtype, device).copy_(tensor)


def allocate(
    tables: Sequence[TableConfig],
    optimizer: Optimizer,
    seed: int,
    track: bool = False,
    device: torch.device = HOST,
) -> list[JointTable]:
    """Joint tables for static `tables`: one for each width, format and own optimizer."""
    together: dict[tuple[int, str, Optimizer | None], list[TableConfig]] = {}
    for table in tables:
        together.setdefault((table.dim, table.dtype, table.optimizer), []).append(table)
    return [JointTable(group, optimizer, seed, track, device) for group in together.values()]
