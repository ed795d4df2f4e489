"""Optimizers over dense NumPy gradients in float64: what training must equal, one table at a time."""

from __future__ import annotations

import numpy as np

from lanner.embedding import FTRL, SGD, Adagrad, Adam, AdamW, RMSProp, RowWiseAdagrad

OPTIMIZERS = (
    SGD(0.1),
    SGD(0.1, momentum=0.8),
    SGD(0.1, momentum=0.8, nesterov=True),
    Adagrad(0.1, 1e-6, 0.1),
    RowWiseAdagrad(0.1, 1e-6, 0.1),
    RMSProp(0.01, 0.9),
    Adam(0.01, (0.8, 0.95), 1e-7),
    AdamW(0.01, (0.8, 0.95), weight_decay=0.0),
    FTRL(0.1, 1.0, 0.05, 0.02),
)
"""One of each; their defaults are too cautious to tell apart after a few steps."""


class DenseTable:
    """A table trained by summed dense gradients; rows without gradient are left alone (lazy)."""

    def __init__(self, weight, optimizer):
        self.weight, self.optimizer, self.steps = weight.astype(np.float64), optimizer, 0
        self.one, self.two = np.zeros_like(self.weight), np.zeros_like(self.weight)
        if isinstance(optimizer, Adagrad | RowWiseAdagrad):
            self.one += optimizer.initial_accumulator

    def step(self, gradient, seen=None, lr_scale=1.0, clip=True):
        """Take a step with `gradient` [rows, dim] on the rows that `seen` marks (None: all)."""
        self.steps += 1
        for row in range(len(self.weight)) if seen is None else np.flatnonzero(seen):
            g, w, longest = gradient[row].astype(np.float64), self.weight[row], self.optimizer.clip_norm
            norm = np.sqrt((g**2).sum())
            if clip and longest is not None and norm > longest:
                g = g / norm * longest
            if isinstance(self.optimizer, AdamW):
                w *= 1 - self.optimizer.lr * lr_scale * self.optimizer.weight_decay
            else:
                g = g + self.optimizer.weight_decay * w
            if isinstance(self.optimizer, FTRL):
                self._proximal(row, g, lr_scale)
            else:
                w -= self.optimizer.lr * lr_scale * self._direction(row, g)

    def _direction(self, row, g):
        optimizer, one, two = self.optimizer, self.one[row], self.two[row]
        if isinstance(optimizer, SGD):
            one[:] = optimizer.momentum * one + g
            return g + optimizer.momentum * one if optimizer.nesterov else one
        if isinstance(optimizer, Adagrad | RowWiseAdagrad):
            one += g**2 if isinstance(optimizer, Adagrad) else (g**2).mean()
            return g / (np.sqrt(one) + optimizer.eps)
        if isinstance(optimizer, RMSProp):
            one[:] = optimizer.alpha * one + (1 - optimizer.alpha) * g**2
            return g / (np.sqrt(one) + optimizer.eps)
        assert isinstance(optimizer, Adam | AdamW)
        b1, b2 = optimizer.betas
        one[:] = b1 * one + (1 - b1) * g
        two[:] = b2 * two + (1 - b2) * g**2
        m, v = one / (1 - b1**self.steps), two / (1 - b2**self.steps)
        return m / (np.sqrt(v) + optimizer.eps)

    def _proximal(self, row, g, lr_scale):
        """Algorithm 1 of McMahan et al. (2013); a schedule scales what the gradient adds to z."""
        optimizer, w, n, z = self.optimizer, self.weight[row], self.one[row], self.two[row]
        sigma = (np.sqrt(n + g**2) - np.sqrt(n)) / optimizer.lr
        z += lr_scale * g - sigma * w
        n += g**2
        new = -(z - np.sign(z) * optimizer.l1) / ((optimizer.beta + np.sqrt(n)) / optimizer.lr + optimizer.l2)
        w[:] = np.where(n == 0, w, np.where(np.abs(z) <= optimizer.l1, 0.0, new))
