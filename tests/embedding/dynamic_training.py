"""One training step of a dynamic table, by the kernels alone."""

from __future__ import annotations

import numpy as np
import torch

from lanner.embedding import SGD, TableConfig
from lanner.embedding.dynamic import DynamicConfig
from lanner.embedding.dynamic.table import DynamicTable
from lanner.kernels.layout import NONE
from lanner.kernels.lookup import lookup
from lanner.kernels.update import update


def make(optimizer=SGD(0.1), dim=4, dtype="fp32", initializer=None, seed=0, **config):
    """A dynamic table with these settings."""
    table = TableConfig("t", "dynamic", dim, initializer, dtype=dtype, dynamic=DynamicConfig(**config))
    return DynamicTable(table, optimizer, seed)


def layout(dim):
    """One feature whose rows are given one by one."""
    return np.array([[0, 0, 1 << 40, NONE, 0, dim]], np.int64)


def read(table, keys, training=False):
    """The vectors [n, dim] that a forward gives for `keys`, and their rows."""
    rows = table.rows_of("t", np.asarray(keys, np.int64), training)
    out = torch.empty(len(rows) * table.dim)
    lookup(table.weights, layout(table.dim), torch.from_numpy(rows), None, None, len(rows), out)
    return out.view(-1, table.dim).numpy(), rows


def train(table, keys, gradient=1.0, step=None, lr_scale=1.0):
    """Forward and backward of `keys` with a gradient, a number or [n, dim]; the vectors forward gave."""
    if step is not None:
        table.step = step
    step = table.step
    out, rows = read(table, keys, training=True)
    given = torch.full((len(rows), table.dim), gradient) if isinstance(gradient, float) else gradient
    update(
        table.weights, tuple(table.states.values()), given.reshape(-1).contiguous(), layout(table.dim),
        torch.from_numpy(rows), None, None, len(rows), None, table.numbers(step, lr_scale, 1.0),
    )  # fmt: skip
    table.changed_rows(rows, step)
    return out
