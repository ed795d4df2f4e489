"""`Channel`: the blocks of one width, whose rows travel together between the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lanner.embedding.sharding.placement import Plan
from lanner.embedding.sharding.shards import Array
from lanner.embedding.tables import TableConfig


@dataclass(frozen=True)
class Channel:
    """Blocks of columns of one width; a rank's row buffer [rows, width] holds one channel's rows.

    `replicated` is that of the tables that every rank holds: their rows need not travel, only their gradients do.
    `cut` is that of the tables with several blocks of columns, of which no rank has a whole row.
    `held` gives by rank the numbers of the tables (places in the collection) that it holds a block of, in order.
    """

    width: int
    replicated: bool
    cut: bool
    held: tuple[tuple[int, ...], ...]

    def rows(self, sizes: Array) -> list[int]:
        """Rows to or from each rank, when sizes[rank, table] are those of the tables of all channels."""
        return [int(row[list(held)].sum()) for row, held in zip(sizes, self.held, strict=True)]

    def starts(self, sizes: Array) -> Array:
        """int64 [ranks, tables]: where the rows of each rank and table begin in the buffer.

        The buffer holds the rows of rank after rank, each ordered by table; of replicated tables it holds one copy.
        """
        starts, total = np.zeros_like(sizes), 0
        for rank, held in enumerate(self.held):
            total = 0 if self.replicated else total
            for table in held:
                starts[rank, table] = total
                total += int(sizes[rank, table])
        return starts


def channels(tables: Sequence[TableConfig], plan: Plan) -> tuple[Channel, ...]:
    """The channels of a plan: the same ones in the same order on every rank."""
    holders: dict[tuple[int, bool, bool], list[tuple[set[int], int]]] = {}
    for number, table in enumerate(tables):
        placement = plan.tables[table.name]
        replicated = placement.kind == "data"
        width = table.dim // max(len(placement.groups), 1)
        ranks = set(range(plan.world_size)) if replicated else set(placement.used)
        holders.setdefault((width, replicated, width < table.dim), []).append((ranks, number))
    return tuple(
        Channel(*kind, tuple(tuple(number for ranks, number in of if rank in ranks) for rank in range(plan.world_size)))
        for kind, of in holders.items()
    )
