"""`Shard`: the part of a table that one rank holds, and where the rows of a table lie."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lanner.embedding import initializers
from lanner.embedding.dynamic.config import DynamicConfig
from lanner.embedding.initializers import Cut
from lanner.embedding.sharding.placement import Placement, Plan
from lanner.embedding.store import Rows
from lanner.embedding.tables import TableConfig

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Shard:
    """Block `block` of `blocks` equal blocks of the columns of `table`, and of its rows share `share` of `shares`.

    A row belongs to share key % shares as row key // shares; in a dynamic table a mix of the key's bits decides
    (`shares_of`), and the key stays the key.
    """

    table: TableConfig
    block: int = 0
    blocks: int = 1
    share: int = 0
    shares: int = 1

    @property
    def dim(self) -> int:
        """Columns of the block."""
        return self.table.dim // self.blocks

    @property
    def columns(self) -> slice:
        """Which columns of the table these are."""
        return slice(self.block * self.dim, (self.block + 1) * self.dim)

    @property
    def rows(self) -> int:
        """Rows of the share of a static table; may be 0."""
        return -(-(self.table.static_rows - self.share) // self.shares)

    @property
    def config(self) -> TableConfig:
        """The table that this rank allocates, under the same name; of a share without rows, one unused row.

        Limits of a dynamic table are those of the whole: each part has its share of them.
        """
        if self.is_whole():
            return self.table
        if self.table.dynamic is not None:
            return replace(
                self.table, dim=self.dim, initializer=self._cut(None), dynamic=self._limited(self.table.dynamic)
            )
        return replace(self.table, rows=max(self.rows, 1), dim=self.dim, initializer=self._cut(self.table.static_rows))

    def _cut(self, rows: int | None) -> Cut:
        whole = self.table.initializer or initializers.default(rows)
        assert not isinstance(whole, Cut), "shards are not cut again"
        first, step = (0, 1) if rows is None else (self.share, self.shares)
        return Cut(whole, first, step, self.columns.start, self.table.dim)

    def _limited(self, whole: DynamicConfig) -> DynamicConfig:
        return replace(
            whole,
            max_waiting=max(whole.max_waiting // self.shares, 2),
            max_rows=None if whole.max_rows is None else -(-whole.max_rows // self.shares),
            max_bytes=None if whole.max_bytes is None else whole.max_bytes // (self.shares * self.blocks),
        )

    def keys(self, local: Array) -> Array:
        """The table's keys of local rows (static) or local keys (dynamic)."""
        return local if is_dynamic(self.table) else local * self.shares + self.share

    def holds(self, keys: Array) -> Array:
        """Which of the table's keys, bool [n], belong to this part."""
        own: Array = shares_of(self.table, keys, self.shares)[0] == self.share
        return own

    def outward(self, rows: Rows) -> Rows:
        """Rows of this part, as the store that holds it knows them, by the table's keys; the columns stay these."""
        keys = self.keys(rows.keys)
        everything = Rows(keys, rows.weights, rows.states)
        if self.is_whole() or is_dynamic(self.table):
            return everything
        return _chosen(everything, keys < self.table.static_rows)  # a share without rows has an unused one

    def inward(self, rows: Rows) -> Rows:
        """What belongs to this part of whole rows of the table, as the store that holds it knows them."""
        if self.is_whole():
            return rows
        share, local = shares_of(self.table, rows.keys, self.shares)
        states = {name: each if each.ndim == 1 else each[:, self.columns] for name, each in rows.states.items()}
        return _chosen(Rows(local, rows.weights[:, self.columns], states), share == self.share)

    def is_whole(self) -> bool:
        """Whether this is the whole table."""
        return self.blocks == self.shares == 1


def _chosen(rows: Rows, which: Array) -> Rows:
    return Rows(rows.keys[which], rows.weights[which], {name: each[which] for name, each in rows.states.items()})


def is_dynamic(table: TableConfig) -> bool:
    """Whether the table takes any key, instead of row numbers."""
    return table.rows == "dynamic"


def shares_of(table: TableConfig, keys: Array, shares: int) -> tuple[Array, Array]:
    """For each key the share it belongs to (of `shares`), and its row in it (static) or itself (dynamic)."""
    if is_dynamic(table):
        return (_mixed(keys) % np.uint64(shares)).astype(np.int64), keys
    return keys % shares, keys // shares


def _mixed(keys: Array) -> Array:
    """Stafford's variant 13 of the MurmurHash3 finaliser; not the mix of `HashIndex`, whose slots it must not skew."""
    x: Array = keys.view(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def held_by(rank: int, plan: Plan, tables: Iterable[TableConfig]) -> dict[str, Shard]:
    """What `rank` holds, by table."""
    return {table.name: shard for table in tables if (shard := _shard(rank, plan.tables[table.name], table))}


def _shard(rank: int, placement: Placement, table: TableConfig) -> Shard | None:
    if placement.kind == "data":
        return Shard(table)
    for block, group in enumerate(placement.groups):
        if rank in group:
            return Shard(table, block, len(placement.groups), group.index(rank), len(group))
    return None
