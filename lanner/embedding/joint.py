"""`JointTable`: all tables of one width and optimizer, in one allocation, with their optimizer state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lanner.embedding import initializers
from lanner.embedding.optimizers import Optimizer
from lanner.embedding.steps import step_of
from lanner.embedding.tables import TableConfig
from lanner.errors import ConfigError
from lanner.kernels import memory
from lanner.kernels.update import Step


class JointTable:
    """Tables lying one after another in one float32 array [rows, dim]; `spans` says where each one lies."""

    def __init__(self, tables: Sequence[TableConfig], optimizer: Optimizer, seed: int) -> None:
        self.dim, self.own_optimizer = tables[0].dim, tables[0].optimizer
        self.spans: dict[str, slice] = {}
        rows = 0
        for table in tables:
            self.spans[table.name] = slice(rows, rows + table.rows)
            rows += table.rows
        self._adopt(_zeros((rows, self.dim)))
        for table in tables:
            block = self._array[self.spans[table.name]]
            initializers.fill(block, table.initializer, table.name, table.rows, seed)
        self.set_optimizer(self.own_optimizer or optimizer)

    def _adopt(self, array: np.ndarray) -> None:
        self._array = array
        self.weights: Tensor = torch.from_numpy(array)

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Use `optimizer` from now on, with fresh state."""
        self.optimizer, rows = optimizer, self.weights.shape[0]
        self.states: dict[str, Tensor] = {}
        for name, state in optimizer.row_states(self.dim).items():
            values = _zeros((rows, *state.shape), state.dtype)
            if state.initial:
                values.fill(state.initial)
            self.states[name] = torch.from_numpy(values)

    def step(self, count: int, learning_rate_scale: float, gradient_scale: float) -> Step:
        """The numbers of step number `count` (from 1) for the kernels."""
        return step_of(self.optimizer, count, learning_rate_scale, gradient_scale)

    def nbytes(self) -> int:
        """Bytes of weights and state."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (self.weights, *self.states.values()))

    def __getstate__(self) -> dict[str, Any]:
        kept = {key: value for key, value in self.__dict__.items() if key not in ("weights", "states", "_array")}
        return {**kept, "arrays": (self._array, {name: state.numpy() for name, state in self.states.items()})}

    def __setstate__(self, values: dict[str, Any]) -> None:
        weights, states = values.pop("arrays")
        self.__dict__.update(values)
        self._adopt(_on_huge_pages(weights))
        self.states = {name: torch.from_numpy(_on_huge_pages(state)) for name, state in states.items()}


def _zeros(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    try:
        return memory.zeros(shape, dtype)
    except (OSError, MemoryError, OverflowError, ValueError) as error:
        size = f"{math.prod(shape) * 4:,} bytes ({' x '.join(map(str, shape))} {dtype})"
        raise ConfigError(f"embedding tables and their optimizer state need {size} at once: out of memory") from error


def _on_huge_pages(array: np.ndarray) -> np.ndarray:
    copy = memory.zeros(array.shape, array.dtype)
    copy[:] = array
    return copy


def allocate(tables: Sequence[TableConfig], optimizer: Optimizer, seed: int) -> list[JointTable]:
    """Joint tables for `tables`: one for each width and own optimizer."""
    together: dict[tuple[int, Optimizer | None], list[TableConfig]] = {}
    for table in tables:
        together.setdefault((table.dim, table.optimizer), []).append(table)
    return [JointTable(group, optimizer, seed) for group in together.values()]
