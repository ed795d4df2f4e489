"""Optimizers that look at whole rows, on tables whose columns lie on several ranks.

Clipping needs the norm of a row's gradient, row-wise Adagrad its mean square. Each rank has the squares of its columns;
their sums over all blocks of columns turn the step into one that every column can take by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lanner.data.batch import Bags
from lanner.embedding.gradients import Backend, Move, Part, RowSums, as_one, sum_by_row
from lanner.embedding.optimizers import Optimizer, RowWiseAdagrad
from lanner.embedding.sharding.shards import Shard
from lanner.kernels.update import Rule, Step

Across = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
"""Sums of [n] over the blocks of columns, by the name of the table."""


class Needs(NamedTuple):
    """Which sums over whole rows the optimizers of some tables need."""

    norms: bool  # to clip
    squares: bool  # for row-wise state

    @classmethod
    def of(cls, optimizers: Iterable[Optimizer]) -> Needs:
        """Of optimizers; all ranks must agree on them."""
        given = list(optimizers)
        clip = any(each.clip_norm is not None for each in given)
        return cls(clip, any(isinstance(each, RowWiseAdagrad) for each in given))


class _Rows(NamedTuple):
    """The distinct rows that a move changes, and their summed gradients."""

    move: Move
    sums: RowSums
    tables: list[str]

    def by_table(self, values: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.tables, torch.split(values, self.sums.counts.tolist()), strict=True))

    def joined(self, values: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([values[table] for table in self.tables])

    @property
    def is_row_wise(self) -> bool:
        return self.move.step.rule is Rule.ROWWISE_ADAGRAD

    @property
    def places(self) -> Tensor:
        """Rows of the store."""
        rows = torch.split(torch.from_numpy(self.sums.rows), self.sums.counts.tolist())
        return torch.cat([part + int(first) for part, first in zip(rows, self.sums.first_rows, strict=True)])


def by_columns(
    moves: Sequence[Move], needs: Needs, across: Across, shards: Mapping[str, Shard], backend: Backend
) -> list[Move]:
    """The same steps as moves in which no column depends on another; row-wise state is brought up to date here.

    All ranks take part, also those without moves, with the same `needs`: those of all tables that the moves of any
    rank may change.
    """
    rows = [_rows(move, backend) for move in moves]
    gradients = [each.sums.sums * each.move.step.scale for each in rows]
    if needs.norms:
        squares = _squares(rows, gradients, across)
        gradients = [_cut(*each) for each in zip(rows, gradients, squares, strict=True)]
    if not needs.squares:
        return [_move(*each) for each in zip(rows, gradients, strict=True)]
    gradients = [_decayed(*each) for each in zip(rows, gradients, strict=True)]
    squares = _squares(rows, gradients, across)
    return [
        _row_wise(*each, shards) if each[0].is_row_wise else _move(*each[:2])
        for each in zip(rows, gradients, squares, strict=True)
    ]


def _rows(move: Move, backend: Backend) -> _Rows:
    sums = sum_by_row(Part(move.store, move.layout, move.bags), move.gradient, move.winners, backend)
    names = {span.start: name for name, span in move.store.spans.items()}
    return _Rows(move, sums, [names[int(first)] for first in sums.first_rows])


def _squares(rows: Sequence[_Rows], gradients: Sequence[Tensor], across: Across) -> list[Tensor]:
    """For each row the sum of the squares of all its columns."""
    own: dict[str, Tensor] = {}
    for each, gradient in zip(rows, gradients, strict=True):
        own |= each.by_table(gradient.square().sum(1))
    sums = across(own)
    return [each.joined(sums) for each in rows]


def _cut(rows: _Rows, gradient: Tensor, squares: Tensor) -> Tensor:
    """The gradients of rows, whose squares sum to these, cut to the longest norm."""
    clip = rows.move.step.clip
    return gradient if clip == math.inf else gradient * (clip / squares.sqrt()).clamp(max=1.0)[:, None]


def _decayed(rows: _Rows, gradient: Tensor) -> Tensor:
    """For a row-wise step, whose squares are those of the gradient with the decay in it."""
    step = rows.move.step
    return gradient + step.decay * rows.move.store.weights[rows.places].float() if rows.is_row_wise else gradient


def _move(rows: _Rows, gradient: Tensor) -> Move:
    flat, layout, bags = as_one([rows.sums._replace(sums=gradient)])
    return Move(rows.move.store, flat, layout, bags, None, rows.move.step._replace(scale=1.0, clip=math.inf))


def _row_wise(rows: _Rows, gradient: Tensor, squares: Tensor, shards: Mapping[str, Shard]) -> Move:
    store, step = rows.move.store, rows.move.step
    flat, layout, bags = as_one([rows.sums._replace(sums=gradient)])
    dims = torch.cat([torch.full_like(part, shards[name].table.dim) for name, part in rows.by_table(squares).items()])
    state, at = store.states["sum"], rows.places
    state[at] += squares / dims
    factors = 1 / (state[at].sqrt() + step.eps)
    own = Bags(bags.names, bags.values, bags.offsets, factors)
    return Move(store, flat, layout, own, None, Step(Rule.SGD, step.rate))
