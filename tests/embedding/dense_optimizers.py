"""Optimizers over dense NumPy gradients in float64: what embedding training must equal, one table at a time."""

from __future__ import annotations

import numpy as np

from lanner.embedding import SGD, Adagrad, RowWiseAdagrad


class DenseTable:
    """A table trained by summed dense gradients; rows without gradient are left alone (lazy)."""

    def __init__(self, weight, optimizer):
        self.weight, self.optimizer, self.steps = weight.astype(np.float64), optimizer, 0
        self.first, self.second = np.zeros_like(self.weight), np.zeros_like(self.weight)

    def step(self, gradient, seen, lr_scale=1.0):
        """Take a step with `gradient` [rows, dim] on the rows that `seen` marks."""
        self.steps += 1
        for row in np.flatnonzero(seen):
            self.weight[row] -= self.optimizer.lr * lr_scale * self._direction(row, gradient[row])

    def _direction(self, row, g):
        optimizer = self.optimizer
        if isinstance(optimizer, SGD):
            return g
        if isinstance(optimizer, Adagrad | RowWiseAdagrad):
            self.first[row] += g**2 if isinstance(optimizer, Adagrad) else (g**2).mean()
            return g / (np.sqrt(self.first[row]) + optimizer.eps)
        b1, b2 = optimizer.betas
        self.first[row] = b1 * self.first[row] + (1 - b1) * g
        self.second[row] = b2 * self.second[row] + (1 - b2) * g**2
        m, v = self.first[row] / (1 - b1**self.steps), self.second[row] / (1 - b2**self.steps)
        return m / (np.sqrt(v) + optimizer.eps)
