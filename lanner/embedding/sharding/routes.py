"""`Router`: from the bags of a batch to what goes to which rank, and where its rows will stand when they come back.

Each distinct id of a table is sent once. The rows that come back lie in one buffer for each channel; the bags are
pooled from there, in *lines*: one for each feature and block of columns, with places in the buffer instead of ids.
The sums of the gradient go back from the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lanner.data.batch import Bags
from lanner.embedding.sharding.channels import Channel, channels
from lanner.embedding.sharding.placement import Plan
from lanner.embedding.sharding.shards import Array, is_dynamic, shares_of
from lanner.embedding.tables import FeatureConfig, TableConfig
from lanner.kernels.unique import unique


@dataclass(frozen=True)
class Line:
    """The feature called `feature`, the channel that brings its rows, and their first column within its dim."""

    feature: str
    channel: int
    column: int


@dataclass(frozen=True)
class Routes:
    """One batch on its way.

    sizes    int64 [ranks, tables]: how many ids of each table go to each rank
    ids      int64 [n], with dynamic tables [n, 2]: by rank, channel and table, the row within the receiver's share
             or the key of a dynamic table, and how often it occurs
    rows     rows in the buffer of each channel
    lines    what each "feature" of `bags` is
    bags     places in the buffers instead of ids
    """

    sizes: Array
    ids: Tensor
    rows: tuple[int, ...]
    lines: tuple[Line, ...]
    bags: Bags


@dataclass(frozen=True)
class _Spread:
    """The distinct ids of one table by share: order[starts[s]:starts[s + 1]] are those of share s.

    The i-th distinct id belongs to share[i] and stands at place[i] among its ids.
    """

    order: Array
    starts: Array
    share: Array | None  # None: there is one share
    place: Array

    def of(self, share: int) -> Array:
        """The distinct ids of a share."""
        return self.order[self.starts[share] : self.starts[share + 1]]

    def places(self, first: Array) -> Array:
        """Where each distinct id stands in a buffer in which the ids of share s begin at first[s]."""
        return self.place + (first[0] if self.share is None else first[self.share])


class Router:
    """Makes `Routes` on rank `rank` of a plan; `channels` are the plan's."""

    def __init__(self, tables: Sequence[TableConfig], features: Sequence[FeatureConfig], plan: Plan, rank: int) -> None:
        self.channels = channels(tables, plan)
        self._tables, self._rank, self._ranks = tuple(tables), rank, plan.world_size
        self._groups = [plan.tables[table.name].groups for table in tables]
        numbers = {table.name: number for number, table in enumerate(tables)}
        self._table_of = {feature.name: numbers[feature.table] for feature in features}
        self._channel_of = {table: at for at, each in enumerate(self.channels) for held in each.held for table in held}
        self._with_times = any(is_dynamic(table) for table in tables)

    def route(self, bags: Bags, training: bool, stray: Callable[[Bags], None]) -> Routes:
        """Where the ids of `bags` (checked ones) go; those of replicated tables leave this rank only in training.

        `stray` is called when ids are outside their static tables; unless it raises, row 0 is taken for them.
        """
        tables = np.array([self._table_of.get(name, len(self._tables)) for name in bags.names], np.int64)
        bounds = _bounds(bags)
        distinct, inverse, counts = unique(bags.values.numpy(), bounds, tables)
        begins = np.cumsum(counts) - counts
        of_all = inverse + np.repeat(begins[tables], np.diff(bounds)) if self._with_times else None
        keys = np.split(distinct, begins[1:])[: len(self._tables)]
        if True in [_clamp(*pair) for pair in zip(self._tables, keys, strict=True)]:
            stray(bags)
        spreads = [_spread(*each) for each in zip(self._tables, keys, self._groups, strict=True)]
        sizes, order = self._send(spreads, begins, training)
        sent = distinct[order]
        if of_all is not None:
            sent = np.stack([sent, np.bincount(of_all, minlength=len(distinct))[order]], axis=1)
        starts = [channel.starts(sizes) for channel in self.channels]
        rows = tuple(self._buffer_rows(channel, sizes) for channel in self.channels)
        lines: list[Line] = []
        places, source = [], []
        for at, name in enumerate(bags.names):
            for line, of_distinct in self._lines(name, spreads, starts):
                lines.append(line)
                places.append(of_distinct[inverse[bounds[at] : bounds[at + 1]]])
                source.append(at)
        return Routes(sizes, torch.from_numpy(sent), rows, tuple(lines), _with_values(bags, source, places))

    def _send(self, spreads: list[_Spread], begins: Array, training: bool) -> tuple[Array, Array]:
        """Sizes [ranks, tables], and the numbers of the distinct ids in the order in which they are sent."""
        sent: dict[tuple[int, int], Array] = {}
        everyone = tuple((rank,) for rank in range(self._ranks)) if training else ((self._rank,),)
        for table, (spread, groups) in enumerate(zip(spreads, self._groups, strict=True)):
            for group in groups or everyone:
                for share, rank in enumerate(group):
                    sent[rank, table] = begins[table] + spread.of(share)
        sizes = np.zeros((self._ranks, len(spreads)), np.int64)
        for place, order in sent.items():
            sizes[place] = len(order)
        in_order = [
            sent[rank, table]
            for rank in range(self._ranks)
            for channel in self.channels
            for table in channel.held[rank]
            if (rank, table) in sent
        ]
        return sizes, np.concatenate(in_order) if in_order else np.empty(0, np.int64)

    def _lines(self, name: str, spreads: list[_Spread], starts: list[Array]) -> Iterator[tuple[Line, Array]]:
        """The lines of a feature, with the place in the channel's buffer of each distinct id."""
        table = self._table_of.get(name)
        if table is None:
            return
        channel = self._channel_of[table]
        for block, group in enumerate(self._groups[table] or ((self._rank,),)):
            first = starts[channel][list(group), table]
            yield Line(name, channel, block * self.channels[channel].width), spreads[table].places(first)

    def _buffer_rows(self, channel: Channel, sizes: Array) -> int:
        rows = channel.rows(sizes)
        return rows[self._rank] if channel.replicated else sum(rows)


def _bounds(bags: Bags) -> Array:
    """Where the ids of each feature begin [F + 1]."""
    ends = np.arange(len(bags.names) + 1) * bags.batch_size
    return ends if bags.offsets is None else np.asarray(bags.offsets.numpy()[ends])


def _clamp(table: TableConfig, keys: Array) -> bool:
    """Put row 0 in place of what is outside a static table; whether anything was."""
    if is_dynamic(table) or not len(keys) or (keys.min() >= 0 and keys.max() < table.rows):
        return False
    keys[(keys < 0) | (keys >= table.rows)] = 0
    return True


def _spread(table: TableConfig, keys: Array, groups: tuple[tuple[int, ...], ...]) -> _Spread:
    """Share out the distinct `keys` of a table; what their owners know them by is put in their place."""
    shares, count = len(groups[0]) if groups else 1, len(keys)
    if shares == 1:
        return _Spread(np.arange(count), np.array([0, count]), None, np.arange(count))
    share, keys[:] = shares_of(table, keys, shares)
    order = np.argsort(share.astype(np.uint16), kind="stable")  # a radix sort
    starts = np.concatenate([[0], np.cumsum(np.bincount(share, minlength=shares))])
    place = np.empty(count, np.int64)
    place[order] = np.arange(count) - np.repeat(starts[:-1], np.diff(starts))
    return _Spread(order, starts, share, place)


def _with_values(bags: Bags, source: list[int], places: list[Array]) -> Bags:
    """Bags whose k-th feature has the shape and weights of feature source[k] of `bags`, with `places` for ids."""
    names = tuple(map(str, range(len(source))))
    values = torch.from_numpy(np.concatenate(places) if places else np.empty(0, np.int64))
    if source == list(range(len(bags.names))):
        return Bags(names, values, bags.offsets, bags.weights)
    bounds, batch = _bounds(bags), bags.batch_size
    weights = offsets = None
    if bags.weights is not None:
        weights = torch.cat([bags.weights[bounds[at] : bounds[at + 1]] for at in source])
    if bags.offsets is not None:
        lengths = bags.offsets.diff().view(len(bags.names), batch)[source].reshape(-1)
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    return Bags(names, values, offsets, weights)
