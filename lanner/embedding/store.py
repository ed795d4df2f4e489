"""What a collection asks of whatever holds rows in local memory, and rows on their way in or out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from lanner.embedding.absence import Absence
from lanner.embedding.optimizers import Optimizer
from lanner.kernels.update import Names, Step


class Rows(NamedTuple):
    """Some rows of a table by key."""

    keys: np.ndarray  # int64 [n]
    weights: np.ndarray  # float32 [n, dim]
    states: dict[str, np.ndarray]  # [n, dim] or [n], by the name of the state


class Store(Protocol):
    """Rows of one or more tables, one after another in `weights`."""

    dim: int
    optimizer: Optimizer
    absence: Absence | None
    """What becomes of rows that do not occur; None: nothing."""
    own_optimizer: Optimizer | None
    keyed: bool
    """Whether ids are keys, which `rows_of` turns into row numbers; otherwise they are row numbers themselves."""
    step: int
    """Number of the step that the next training lookup belongs to; the collection sets it."""

    @property
    def weights(self) -> Tensor:
        """[capacity, dim] of the format the rows are trained in; another tensor, perhaps, after `rows_of`."""
        ...

    @property
    def states(self) -> dict[str, Tensor]:
        """[capacity, dim] or [capacity] by name."""
        ...

    @property
    def spans(self) -> dict[str, slice]:
        """Which rows are which table's."""
        ...

    @property
    def names(self) -> Names:
        """What the random rounding of rows goes by, where they have 16 bits."""
        ...

    def rows_of(self, table: str, keys: np.ndarray, training: bool, times: np.ndarray | None = None) -> np.ndarray:
        """Row numbers, int64 [n] from the start of the table's span, of int64 keys. Only of a keyed store.

        `times` int64 [n] says how many occurrences each key stands for (None: one).
        """
        ...

    def numbers(self, count: int, learning_rate_scale: float, gradient_scale: float) -> Step:
        """The numbers of step number `count` (from 1) for the kernels."""
        ...

    def catch_up(self, rows: np.ndarray | None = None) -> None:
        """Let rows of the store, or all, take the steps that they missed; called before they are read or changed."""
        ...

    def continue_after(self, step: int) -> None:
        """Have all rows, brought up to date, be as of after step number `step`."""
        ...

    def changed_rows(self, rows: np.ndarray, count: int) -> None:
        """Called after step number `count` with the numbers of the rows it changed, repeated ones included."""
        ...

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Use `optimizer` from now on, with fresh state."""
        ...

    def nbytes(self) -> int:
        """Bytes of everything held."""
        ...

    def blocks(self, table: str, since: int | None = None) -> Iterator[Rows]:
        """All rows of a table, or those changed after step `since`, some megabytes at a time; keys rise.

        Raises DataError or ConfigError where it is not known what changed since.
        """
        ...

    def place(self, table: str, rows: Rows) -> None:
        """Put rows in under their keys; states that `rows` does not hold stay as they are."""
        ...

    def restored(self, table: str, step: int) -> None:
        """Told once all rows are put in as they were after step number `step`; earlier changes are not known."""
        ...

    def deleted_since(self, table: str, step: int) -> np.ndarray:
        """Keys, int64, taken out after step `step`."""
        ...
