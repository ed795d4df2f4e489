"""Gradients of rows: one forward's worth waiting for its step, and their sums by row.

Sums by row are what several backward passes, or several processes, have in common: whatever made them, a step then
takes them as if each row had been looked up once by a feature of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lanner.data.batch import Bags
from lanner.kernels.layout import FEATURE, FIRST_ROW, NONE, ROWS
from lanner.kernels.unique import unique
from lanner.kernels.update import Rule, Step, update

if TYPE_CHECKING:
    from lanner.embedding.backed.holds import Hold
    from lanner.embedding.sharding.sharded import Visit
    from lanner.embedding.store import Store

Backend = Literal["reference", "cpu", "gpu"]


class Part(NamedTuple):
    """The look-ups of one batch in one store: its layout, and the bags with ids as rows of their tables."""

    store: Store
    layout: np.ndarray
    bags: Bags


@dataclass(frozen=True)
class Pending:
    """One backward's worth: what forward looked up, the flat gradient, and the winners of max pooling.

    `parts` is a `Visit` where the tables are those of several processes. `holds` keep the rows of tables on disk in
    memory until the step is taken. `given` is what was looked up, after `steps` steps of the collection.
    """

    parts: tuple[Part, ...] | Visit
    gradient: Tensor
    winners: Tensor | None
    holds: Mapping[str, Hold] = field(default_factory=dict)
    given: Bags | None = None
    steps: int = 0

    @property
    def local(self) -> tuple[Part, ...]:
        """The parts, where all of them are of this process."""
        assert isinstance(self.parts, tuple)
        return self.parts


class Move(NamedTuple):
    """One call of `lanner.kernels.update.update` on a store."""

    store: Store
    gradient: Tensor
    layout: np.ndarray
    bags: Bags
    winners: Tensor | None
    step: Step


class RowSums(NamedTuple):
    """Summed gradients of the distinct rows of the tables of one store."""

    first_rows: np.ndarray  # int64 [T]: where each table lies in the store
    sizes: np.ndarray  # int64 [T]: its rows
    counts: np.ndarray  # int64 [T]: how many of them there are here
    rows: np.ndarray  # int64 [n], from the start of their table
    sums: Tensor  # float32 [n, dim]


def sum_by_row(part: Part, gradient: Tensor, winners: Tensor | None, backend: Backend) -> RowSums:
    """The gradients of each row summed over all bags of `part`, rows in order of first appearance."""
    layout, bags = part.layout, part.bags
    batch = bags.batch_size
    first_rows, segments = np.unique(layout[:, FIRST_ROW], return_inverse=True)
    ends = np.arange(bags.values.numel() + 1) if bags.offsets is None else bags.offsets.cpu().numpy()
    starts = layout[:, FEATURE] * batch
    pieces = [bags.values[ends[start] : ends[start + batch]] for start in starts] if batch else []
    bounds = np.cumsum([0, *(piece.numel() for piece in pieces)])
    values = torch.cat(pieces).cpu().numpy() if pieces else np.empty(0, np.int64)
    rows, inverse, counts = unique(values, bounds, segments[: len(pieces)])
    counts = np.concatenate([counts, np.zeros(len(first_rows) - len(counts), np.int64)])
    lines, shift = layout.copy(), np.cumsum(counts) - counts
    lines[:, FIRST_ROW], lines[:, ROWS] = shift[segments], counts[segments]
    places = bags.values.long().clone()
    for (start, piece), begin in zip(zip(starts, pieces, strict=False), bounds, strict=False):
        own = torch.from_numpy(inverse[begin : begin + piece.numel()])
        places[ends[start] : ends[start] + piece.numel()] = own.to(places.device)
    sums = torch.zeros(len(rows), part.store.dim, device=gradient.device)
    if len(rows):
        update(
            sums, (), gradient, lines, places, bags.offsets, bags.weights, batch, winners, Step(Rule.SGD, -1.0),
            backend=backend,
        )  # fmt: skip
    sizes = np.array([layout[layout[:, FIRST_ROW] == first, ROWS][0] for first in first_rows], np.int64)
    return RowSums(first_rows, sizes, counts, rows, sums)


def moves(pending: Sequence[Pending], step_of: Callable[[Store], Step], backend: Backend) -> Iterator[Move]:
    """One step of every store with the sum of all pending gradients, which are of the same stores."""
    for index, (store, layout, bags) in enumerate(pending[0].local):
        gradient, winners = pending[0].gradient, pending[0].winners
        if len(pending) > 1:
            sums = [sum_by_row(one.local[index], one.gradient, one.winners, backend) for one in pending]
            gradient, layout, bags = as_one(sums)
            winners = None
        yield Move(store, gradient, layout, bags, winners, step_of(store))


def as_one(parts: list[RowSums]) -> tuple[Tensor, np.ndarray, Bags]:
    """Gradient, layout and bags of one look-up, row by row, of all rows in `parts`, for `update`."""
    lines: list[tuple[int, ...]] = []
    values, gradients, lengths = [], [], []
    tables = sorted({int(first) for part in parts for first in part.first_rows})
    at = 0
    for table in tables:
        for part in parts:
            where = np.flatnonzero(part.first_rows == table)
            if not len(where):
                continue
            index = int(where[0])
            begin, count = int(part.counts[:index].sum()), int(part.counts[index])
            dim = part.sums.shape[1]
            lines.append((len(lines), table, int(part.sizes[index]), NONE, at * dim, dim))
            values.append(part.rows[begin : begin + count])
            gradients.append(part.sums[begin : begin + count])
            lengths.append(count)
            at += count
    ids = torch.from_numpy(np.concatenate(values) if values else np.empty(0, np.int64))
    offsets = torch.from_numpy(np.cumsum([0, *lengths]))
    flat = torch.cat(gradients or [part.sums for part in parts]).view(-1)
    bags = Bags(tuple(map(str, range(len(lines)))), ids, offsets).to(flat.device)
    return flat, np.array(lines, np.int64).reshape(-1, 6), bags
