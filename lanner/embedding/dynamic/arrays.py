"""`RowArrays`: weights, optimizer state, keys and usage of a dynamic table's rows, in arrays that grow together."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lanner.embedding.optimizers import Optimizer, RowState
from lanner.kernels.memory import Growing, touched
from lanner.kernels.usage import COUNT, USED

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_CARRIERS = {"fp32": "float32", "fp16": "int16", "bf16": "int16"}  # NumPy has no bfloat16
_KEPT = {"key": ((), "int64"), "usage": ((2,), "int32")}


class RowArrays:
    """Rows 0 .. `top`-1 are or were in use; there is address space, or else room to be made, for `limit` rows.

    Attributes:
        weights: [capacity, dim] of the table's format.
        states: by name, [capacity, ...] each.
        keys: int64 [capacity], of the rows in use.
        usage: int32 [capacity, 2], see `lanner.kernels.usage`; all zeros for a row that is not in use.
    """

    def __init__(self, dim: int, dtype: str, optimizer: Optimizer, limit: int) -> None:
        self.limit, self.top = limit, 0
        self._dtype = DTYPES[dtype]
        self._weights = Growing(limit, (dim,), _CARRIERS[dtype])
        self._kept = {name: Growing(limit, *form) for name, form in _KEPT.items()}
        self.set_states(optimizer.row_states(dim))

    def set_states(self, states: dict[str, RowState]) -> None:
        """Keep these states, as those of fresh rows, instead of those kept so far."""
        self._forms = states
        self._states = {name: Growing(self.limit, form.shape, form.dtype) for name, form in states.items()}
        self._show()
        self.reset_states(slice(0, self.top))

    def _show(self) -> None:
        self.weights: Tensor = torch.from_numpy(self._weights.array).view(self._dtype)
        self.states = {name: torch.from_numpy(state.array) for name, state in self._states.items()}
        self.keys, self.usage = self._kept["key"].array, self._kept["usage"].array

    def extend(self, count: int) -> np.ndarray:
        """The numbers, int64, of `count` more rows; no more than `limit` in all."""
        rows = np.arange(self.top, self.top + count)
        self.top += count
        moved = [array.grow(self.top) for array in self._all()]
        if any(moved):
            self._show()
        return rows

    def set_rows(self, rows: np.ndarray, weights: np.ndarray) -> None:
        """Write float32 weights [n, dim], rounded to the table's format."""
        if self._dtype is torch.float32:
            self._weights.array[rows] = weights
        else:
            self.weights.index_copy_(0, torch.from_numpy(rows), torch.from_numpy(weights).to(self._dtype))

    def reset_states(self, rows: np.ndarray | slice) -> None:
        """Give rows the state of fresh ones."""
        for name, state in self._states.items():
            state.array[rows] = self._forms[name].initial

    def claim(self, rows: np.ndarray, keys: np.ndarray, used: np.ndarray | int, counts: np.ndarray) -> None:
        """Let `rows` be those of `keys`."""
        self.keys[rows] = keys
        self.usage[rows, USED] = used
        self.usage[rows, COUNT] = counts

    def release(self, rows: np.ndarray) -> None:
        """Let `rows` hold nothing."""
        self.usage[rows] = 0

    def in_use(self) -> np.ndarray:
        """The rows that hold a key, int64, rising."""
        return np.flatnonzero(self.usage[: self.top, COUNT])

    def nbytes(self) -> int:
        """Bytes of memory touched."""
        return sum(touched(self.top * array.row_bytes) for array in self._all())

    def _all(self) -> list[Growing]:
        return [self._weights, *self._states.values(), *self._kept.values()]


def bytes_of(rows: int, dim: int, dtype: str, optimizer: Optimizer) -> int:
    """What `RowArrays.nbytes` is with `rows` rows."""
    forms = [((dim,), _CARRIERS[dtype]), *((state.shape, state.dtype) for state in optimizer.row_states(dim).values())]
    widths = [int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in [*forms, *_KEPT.values()]]
    return sum(touched(rows * width) for width in widths)
