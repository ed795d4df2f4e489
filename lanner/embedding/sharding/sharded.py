"""`ShardedTables`: looking up and updating tables whose parts lie on several ranks.

One batch, on every rank:

1. the distinct ids of the batch go to the ranks that hold their rows (`Crossing.prepare`);
2. those ranks look the rows up and send them, and the bags are pooled from what arrives;
3. the gradient is summed by distinct id, and the sums go the way the ids went;
4. each rank takes one step on its own rows with the sums of all ranks.

A table that every rank holds takes part in 1 and 3 alone: all ranks take the same step on their copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor

from lanner.data.batch import Bags
from lanner.embedding.backed.holds import Hold
from lanner.embedding.backed.table import BackedTable
from lanner.embedding.gradients import Backend, Move, Part, Pending, moves
from lanner.embedding.named import catch_up
from lanner.embedding.optimizers import Optimizer
from lanner.embedding.sharding.arrivals import Arrivals
from lanner.embedding.sharding.columns import Needs, by_columns
from lanner.embedding.sharding.crossing import Crossing, Trip
from lanner.embedding.sharding.shards import Array
from lanner.embedding.store import Store
from lanner.embedding.tables import FeatureConfig
from lanner.kernels.layout import POOLINGS
from lanner.kernels.lookup import lookup
from lanner.kernels.memory import empty_tensor
from lanner.kernels.update import Rule, Step, update

_ADD_UP = Step(Rule.SGD, rate=-1.0)  # descending "uphill" from zeros gives the sum of the gradients


@dataclass(frozen=True)
class Visit:
    """One batch in the tables, between forward and backward.

    layouts   for each channel, how its buffer's rows go to the output
    rows      what arrived, as rows of this rank's tables: a "feature" for each run, of one sample
    """

    trip: Trip
    layouts: tuple[Array, ...]
    rows: Bags


class ShardedTables:
    """This rank's `stores`, and the way to those of the others."""

    def __init__(
        self,
        crossing: Crossing,
        stores: Sequence[Store],
        features: Sequence[FeatureConfig],
        backend: Backend,
    ) -> None:
        self.crossing, self._stores, self._backend = crossing, tuple(stores), backend
        self._names = [table.name for table in crossing.tables]
        self._features = {feature.name: at for at, feature in enumerate(features)}
        self._poolings = [POOLINGS[feature.pooling] for feature in features]
        self._spans = [
            {number: store.spans[name] for number, name in enumerate(self._names) if name in store.spans}
            for store in stores
        ]

    def prepare(self, bags: Bags, training: bool, stray: Callable[[Bags], None]) -> Future[Trip]:
        """Send ids ahead, and bring the rows of tables on disk into memory where they arrive."""
        return self.crossing.prepare(bags, training, stray, self._hold)

    def _hold(self, arrivals: Arrivals, training: bool) -> dict[str, Hold]:
        ids = arrivals.keys.numpy()
        return {
            self._names[table]: store.hold(ids[arrivals.places(table)], training)
            for store, spans in zip(self._stores, self._spans, strict=True)
            if isinstance(store, BackedTable)
            for table in spans
        }

    def visit(self, trip: Trip, places: Sequence[tuple[int, int]], step: int | None) -> Visit:
        """Begin a batch: `places` gives OUT and STRIDE of each feature, `step` the step it is trained in, if it is."""
        lines: list[list[tuple[int, ...]]] = [[] for _ in self.crossing.channels]
        for number, line in enumerate(trip.routes.lines):
            feature, rows = self._features[line.feature], max(trip.routes.rows[line.channel], 1)
            out, stride = places[feature]
            lines[line.channel].append((number, 0, rows, self._poolings[feature], out + line.column, stride))
        layouts = tuple(np.array(each, np.int64) for each in lines)
        visit = Visit(trip, layouts, self._find_rows(trip, step))
        for channel in range(len(layouts)):  # rows that all ranks asked for, so that all have the same copies
            catch_up(self._parts(visit, channel, range(self.crossing.world_size)), step is not None)
        return visit

    def _find_rows(self, trip: Trip, step: int | None) -> Bags:
        """Rows in place of keys; in training, keyed tables take keys in."""
        arrived = trip.arrivals
        rows = arrived.keys.clone() if trip.holds else arrived.keys
        for store, spans in zip(self._stores, self._spans, strict=True):
            for table in spans if store.keyed else ():
                places = arrived.places(table)
                if isinstance(store, BackedTable):
                    rows.numpy()[places] = trip.holds[self._names[table]].rows()
                    continue
                keys, times = np.ascontiguousarray(arrived.ids.numpy()[places].T)
                store.step = store.step if step is None else step
                rows.numpy()[places] = store.rows_of(self._names[table], keys, step is not None, times)
        return Bags(tuple(map(str, range(len(arrived.offsets) - 1))), rows, arrived.offsets)

    def looked_up(self, pending: Pending) -> Iterator[tuple[Store, Array, Array]]:
        """What all ranks asked of this one for `pending`: by keyed store, keys and the rows that were found."""
        visit = pending.parts
        assert isinstance(visit, Visit)
        arrived = visit.trip.arrivals
        for store, spans in zip(self._stores, self._spans, strict=True):
            for table in spans if store.keyed else ():
                places = arrived.places(table)
                yield store, arrived.keys.numpy()[places], visit.rows.values.numpy()[places]

    def lookup(self, visit: Visit, out: Tensor, winners: Tensor | None) -> None:
        """Fill the flat `out` (and `winners`) as `lanner.kernels.lookup` does."""
        bags = visit.trip.routes.bags
        for channel, layout in enumerate(visit.layouts):
            lookup(
                self._buffer(visit, channel), layout, bags.values, bags.offsets, bags.weights, bags.batch_size,
                out, winners, backend=self._backend,
            )  # fmt: skip

    def _buffer(self, visit: Visit, channel: int) -> Tensor:
        """The rows [n, width] that this rank's batch needs."""
        of, arrived = self.crossing.channels[channel], visit.trip.arrivals
        counts = arrived.rows(channel)
        sources = [self.crossing.rank] if of.replicated else range(len(counts))
        rows = empty_tensor((sum(counts[source] for source in sources), of.width))
        for part in self._parts(visit, channel, sources):
            lookup(
                part.store.weights, part.layout, part.bags.values, part.bags.offsets, None, 1,
                rows.view(-1), backend=self._backend,
            )  # fmt: skip
        return rows if of.replicated else self.crossing.fetch(visit.trip, channel, rows)

    def _parts(self, visit: Visit, channel: int, sources: Sequence[int]) -> tuple[Part, ...]:
        """Look-ups, row by row, of what the ranks `sources` asked of this one."""
        width, parts = self.crossing.channels[channel].width, []
        for store, spans in zip(self._stores, self._spans, strict=True):
            layout = visit.trip.arrivals.lines(channel, spans, width, sources)
            if len(layout):
                parts.append(Part(store, layout, visit.rows))
        return tuple(parts)

    def moves(
        self, pending: Sequence[Pending], step_of: Callable[[Store], Step], optimizer: Optimizer
    ) -> Iterator[Move]:
        """One step of every store with the sum of all pending gradients of all ranks; `optimizer` is the default."""
        for channel, summands in enumerate(zip(*map(self._gradients, pending), strict=True)):
            own = list(moves(summands, step_of, self._backend))
            tables = {self.crossing.tables[number] for held in self.crossing.channels[channel].held for number in held}
            needs = Needs.of(table.optimizer or optimizer for table in tables)
            if self.crossing.channels[channel].cut and any(needs):
                across = partial(self._across_blocks, channel)
                own = by_columns(own, needs, across, self.crossing.shards, self._backend)
            yield from own

    def _across_blocks(self, channel: int, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`Crossing.across_blocks` by the names of the tables."""
        sums = self.crossing.across_blocks(channel, {self._names.index(name): each for name, each in values.items()})
        return {self._names[number]: each for number, each in sums.items()}

    def _gradients(self, own: Pending) -> list[Pending]:
        """What the backward passes of all ranks mean to the rows of this one, for each channel."""
        visit, gradient, winners = own.parts, own.gradient, own.winners
        assert isinstance(visit, Visit)
        bags, pending = visit.trip.routes.bags, []
        for channel, layout in enumerate(visit.layouts):
            sums = empty_tensor((visit.trip.routes.rows[channel], self.crossing.channels[channel].width)).zero_()
            update(
                sums, (), gradient, layout, bags.values, bags.offsets, bags.weights, bags.batch_size,
                winners, _ADD_UP, backend=self._backend,
            )  # fmt: skip
            received = self.crossing.deliver(visit.trip, channel, sums)
            parts = self._parts(visit, channel, range(self.crossing.world_size))
            pending.append(Pending(parts, received.view(-1), None))
        return pending
