"""Rows of synthetic click logs: every cell is a function of (seed, row, column), so any row can be made alone."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lanner.kernels import parallel
from lanner.kernels.synthetic import cpu

MISSING = cpu.MISSING
_CELL = 12
"""Bytes that a cell takes at most with its separator."""


class World(NamedTuple):
    """The parameters of the logs: F categorical columns, D numeric ones, P interacting pairs (float64 but seed, pairs).

    sparse: `log_size` = ln(cardinality + 1), `salt` of the printed hash, `strength` of the values' effects,
    `sparse_missing` share; dense: location `center` and `spread` on the log scale, `shift` subtracted from the
    value, `linear` and `square` effects, `dense_missing` share; `pairs` [P, 2] columns; then `bias` and `scale` of
    the logit, and the share of rows `fade` below which a value's effect fades out.
    """

    seed: int
    log_size: NDArray[np.float64]
    salt: NDArray[np.uint32]
    strength: NDArray[np.float64]
    sparse_missing: NDArray[np.float64]
    center: NDArray[np.float64]
    spread: NDArray[np.float64]
    shift: NDArray[np.float64]
    linear: NDArray[np.float64]
    square: NDArray[np.float64]
    dense_missing: NDArray[np.float64]
    pairs: NDArray[np.int64]
    pair_strength: NDArray[np.float64]
    bias: float
    scale: float
    fade: float


class Rows(NamedTuple):
    """N rows: `dense` int64 [N, D], `ranks` int64 [N, F] of values by falling frequency, MISSING where a cell is empty;
    the true `logits` float64 [N] and the `labels` uint8 [N] drawn from them."""

    dense: NDArray[np.int64]
    ranks: NDArray[np.int64]
    logits: NDArray[np.float64]
    labels: NDArray[np.uint8]


def rows(world: World, first: int, count: int) -> Rows:
    """Rows `first` .. `first` + `count` - 1."""
    made = Rows(
        np.empty((count, world.center.size), np.int64),
        np.empty((count, world.salt.size), np.int64),
        np.empty(count, np.float64),
        np.empty(count, np.uint8),
    )
    parallel.run(cpu.make_rows, count, world, first, *made, grain=1024)
    return made


def text(world: World, made: Rows) -> list[NDArray[Any]]:
    """The rows as tab-separated lines (label, integers, 8 hex digits), in consecutive pieces of bytes."""
    count, width = made.labels.size, 2 + _CELL * (made.dense.shape[1] + made.ranks.shape[1])
    bounds = np.linspace(0, count, parallel.threads() + 1).astype(np.int64)
    pieces = [np.empty(width * int(end - begin), np.uint8) for begin, end in pairwise(bounds)]

    def write(index: int) -> None:
        used = cpu.write_text(
            bounds[index], bounds[index + 1], made.labels, made.dense, made.ranks, world.salt, pieces[index]
        )
        pieces[index] = pieces[index][:used]

    parallel.run_all([partial(write, index) for index in range(len(pieces))])
    return pieces
