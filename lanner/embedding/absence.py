"""`Absence`: what `Adam(mode="global")` makes of rows while they do not occur.

Dense Adam moves every weight in every step, also by what is left of old gradients; a table would be written whole each
time. Here each row has the number of the last step taken on it, and takes those that it missed, with the learning
rates of those steps, before anybody reads it: rows of a batch one by one, all rows before evaluation or a dump. So
what is read is what dense Adam would have made.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lanner.embedding.optimizers import Adam, Optimizer
from lanner.kernels.catch_up import Past, catch_up

if TYPE_CHECKING:
    from lanner.embedding.store import Store

STEP = "step"
"""The state that holds the last step of a row; 0: none yet, and nothing to make up for."""

_CHUNK = 1 << 20  # rows looked through at once
_catching_up = threading.Lock()  # many threads may evaluate at once, one may dump while another trains


class Absence:
    """The learning rates of the steps since all rows of a store were last brought up to date, 8 bytes a step.

    Attributes:
        taken: number of the last step.
    """

    def __init__(self, optimizer: Adam) -> None:
        self._optimizer = optimizer
        self._begin(0)

    @classmethod
    def of(cls, optimizer: Optimizer) -> Absence | None:
        """None for an optimizer that leaves rows alone while they do not occur."""
        return cls(optimizer) if isinstance(optimizer, Adam) and optimizer.mode == "global" else None

    def _begin(self, taken: int) -> None:
        """All rows are as of after step number `taken`."""
        self.taken = self._since = taken
        self._numbers = np.empty((2, 64), np.float32)

    def note(self, learning_rate_scale: float) -> None:
        """One more step is taken, with this factor on the learning rate."""
        (beta1, beta2), rate = self._optimizer.betas, self._optimizer.lr * learning_rate_scale
        with _catching_up:
            self._append(rate / (1 - beta1 ** (self.taken + 1)), 1 / math.sqrt(1 - beta2 ** (self.taken + 1)))

    def _append(self, rate: float, correction: float) -> None:
        known = self.taken - self._since
        if known == self._numbers.shape[1]:
            self._numbers = np.concatenate([self._numbers, np.empty_like(self._numbers)], axis=1)
        self._numbers[:, known] = rate, correction
        self.taken += 1

    def mark(self, states: dict[str, Tensor], rows: np.ndarray) -> None:
        """The step after `taken` is being taken on `rows`."""
        states[STEP][torch.from_numpy(rows).to(states[STEP].device)] = self.taken + 1

    def catch_up(self, store: Store, rows: np.ndarray) -> np.ndarray:
        """Bring `rows`, repeated ones included, to after the last step; the distinct ones that missed some."""
        if self._since == self.taken:
            return np.empty(0, np.int64)
        with _catching_up:
            named = torch.from_numpy(rows).to(store.weights.device)
            return self._move(store, torch.unique(named[self._behind(store.states[STEP][named])]))

    def catch_up_all(self, store: Store, top: int) -> Iterator[np.ndarray]:
        """Bring the rows below `top`, which are all, to after the last step; in turn those that missed some."""
        with _catching_up:
            if self._since == self.taken:
                return
            for begin in range(0, top, _CHUNK):
                behind = self._behind(store.states[STEP][begin : min(begin + _CHUNK, top)])
                yield self._move(store, behind.nonzero()[:, 0] + begin)
            self._begin(self.taken)

    def settle(self, states: dict[str, Tensor], rows: np.ndarray) -> None:
        """Let `rows`, which were put in, be as of after the last step, whatever step they had taken elsewhere."""
        at = torch.from_numpy(rows).to(states[STEP].device)
        states[STEP][at] = (states[STEP][at] > 0).int() * max(self.taken, 1)

    def jump(self, states: dict[str, Tensor], top: int, taken: int) -> None:
        """Let all rows, which are brought up to date, be as of after step number `taken`."""
        steps = states[STEP][:top]
        steps[steps > 0] = taken
        self._begin(taken)

    def _behind(self, steps: Tensor) -> Tensor:
        return (steps > 0) & (steps < self.taken)

    def _move(self, store: Store, rows: Tensor) -> np.ndarray:
        known, states, weights = self.taken - self._since, store.states, store.weights
        rates, corrections = (torch.from_numpy(each[:known]).to(weights.device) for each in self._numbers)
        past = Past(self._since, rates, corrections, *self._optimizer.betas, self._optimizer.eps)
        catch_up(weights, states["first"], states["second"], states[STEP], rows, past, self.taken, store.names)
        moved: np.ndarray = rows.cpu().numpy()
        return moved
