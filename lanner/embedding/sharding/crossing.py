"""`Crossing`: how the ids of a batch, their rows and their gradients go between the ranks of a plan.

Ids go ahead, in a background thread and over a process group of their own, while an earlier batch computes; what
they need to find their way does not depend on the rows. Rows and gradients follow on the caller's thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from lanner.data.batch import Bags
from lanner.embedding.backed.holds import Hold
from lanner.embedding.sharding.arrivals import Arrivals
from lanner.embedding.sharding.exchange import Wire
from lanner.embedding.sharding.placement import Plan
from lanner.embedding.sharding.routes import Router, Routes
from lanner.embedding.sharding.shards import Array, held_by
from lanner.embedding.tables import FeatureConfig, TableConfig
from lanner.errors import ConfigError, LannerError
from lanner.kernels.memory import empty_tensor

_KIND = {"evaluating": 0, "training": 1, "in error": 2}


@dataclass(frozen=True)
class Trip:
    """A batch whose ids have arrived: where this rank's went, what came here, and holds on its rows on disk."""

    routes: Routes
    arrivals: Arrivals
    holds: Mapping[str, Hold]


Holding = Callable[[Arrivals, bool], Mapping[str, Hold]]


class Crossing:
    """One rank's end. Every rank must call the same methods in the same order, with its own batches."""

    def __init__(
        self,
        tables: Sequence[TableConfig],
        features: Sequence[FeatureConfig],
        plan: Plan,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self._id_wire, self._row_wire = Wire(group), Wire(group)
        self.rank, self.world_size = self._row_wire.rank, self._row_wire.world_size
        self._router, self.tables = Router(tables, features, plan, self.rank), tuple(tables)
        self.channels, self.shards = self._router.channels, held_by(self.rank, plan, tables)
        self.plan = plan
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="lanner-ids")
        self.require_same("tables, features or plan", (self.tables, tuple(features), dict(plan.tables)))

    @property
    def wire(self) -> Wire:
        """The way to the other ranks for whatever else the caller's thread has to say."""
        return self._row_wire

    def require_same(self, what: str, given: object) -> None:
        """Raise ConfigError on all ranks where `what` was given differs, as `repr` tells."""
        digest = hashlib.blake2b(repr(given).encode(), digest_size=8).hexdigest()
        for rank, other in enumerate(self._row_wire.messages(digest)):
            if other != digest:
                raise ConfigError(f"embedding: rank {rank} has other {what} than rank {self.rank}")

    def prepare(self, bags: Bags, training: bool, stray: Callable[[Bags], None], hold: Holding) -> Future[Trip]:
        """Send the ids of checked bags on their way, in the background; see `Router.route`.

        `hold` gives the trip's holds, from what arrives and from `training`. Where it fails on one rank, the results
        of all ranks raise.
        """
        return self._ahead.submit(self._send_ids, bags, training, stray, hold)

    def _send_ids(self, bags: Bags, training: bool, stray: Callable[[Bags], None], hold: Holding) -> Trip:
        try:
            routes = self._router.route(bags, training, stray)
        except Exception as error:  # whatever it is: the other ranks wait for this one's sizes
            self._agree("in error", np.zeros((self.world_size, len(self.tables)), np.int64), str(error) or repr(error))
            raise
        sizes = self._agree("training" if training else "evaluating", routes.sizes, "")
        ids = self._id_wire.exchange(routes.ids, routes.sizes.sum(1).tolist(), sizes.sum(1).tolist())
        arrivals = Arrivals(ids, sizes, tuple(channel.held[self.rank] for channel in self.channels))
        return Trip(routes, arrivals, hold(arrivals, training))

    def _agree(self, state: str, sizes: Array, problem: str) -> Array:
        """The sizes of what comes from each rank [ranks, tables], once all ranks are in the same state."""
        own = np.full((self.world_size, 1), _KIND[state])
        states, arriving = np.split(self._id_wire.swap(np.concatenate([own, sizes], axis=1)), [1], axis=1)
        if _KIND["in error"] in states:
            told = self._id_wire.messages(problem)
            if state != "in error":
                raise LannerError("; ".join(f"rank {rank}: {text}" for rank, text in enumerate(told) if text))
        elif (states != _KIND[state]).any():
            rank = int(np.argmax(states != _KIND[state]))
            raise LannerError(f"embedding: rank {rank} is not {state}, as rank {self.rank} is; all ranks must agree")
        return arriving

    def fetch(self, trip: Trip, channel: int, rows: Tensor) -> Tensor:
        """Answer all ranks with `rows`, those of the arrived ids, and get the channel's buffer [rows, width]."""
        asked = self.channels[channel].rows(trip.routes.sizes)
        return self._row_wire.exchange(rows, trip.arrivals.rows(channel), asked)

    def deliver(self, trip: Trip, channel: int, sums: Tensor) -> Tensor:
        """Send what belongs to the rows of the buffer to their ranks; get the same for the ids that arrived here."""
        sent = self.channels[channel].rows(trip.routes.sizes)
        if self.channels[channel].replicated:
            sums = empty_tensor((self.world_size, *sums.shape)).copy_(sums).flatten(0, 1)
        return self._row_wire.exchange(sums, sent, trip.arrivals.rows(channel))

    def across_blocks(self, channel: int, values: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Sums of `values` [n] over the blocks of the columns of each table (by number) of a channel held here.

        The ranks that hold the same rows of a table have values for these rows in the same order.
        """
        peers = {table: self._peers(table) for table in self.channels[channel].held[self.rank]}
        shared = [[table for table in peers if rank in peers[table]] for rank in range(self.world_size)]
        sizes = [sum(len(values[table]) for table in tables) for tables in shared]
        sent = [values[table] for tables in shared for table in tables]
        came = torch.split(self._row_wire.exchange(torch.cat([torch.empty(0), *sent]), sizes, sizes), sizes)
        pieces = [
            dict(zip(tables, torch.split(piece, [len(values[table]) for table in tables]), strict=True))
            for tables, piece in zip(shared, came, strict=True)
        ]
        return {table: torch.stack([pieces[rank][table] for rank in ranks]).sum(0) for table, ranks in peers.items()}

    def _peers(self, table: int) -> list[int]:
        """The ranks that hold this one's rows of a table, in the order of their columns."""
        name = self.tables[table].name
        return [group[self.shards[name].share] for group in self.plan.tables[name].groups]


def spread(
    tables: Sequence[TableConfig],
    features: Sequence[FeatureConfig],
    plan: Plan | None,
    group: dist.ProcessGroup | None,
    training: object,
) -> Crossing | None:
    """The crossing between the ranks of `group`; None where this process holds all tables.

    That is so with one process, and with a plan for one. Raises ConfigError where the plan does not suit the tables
    or the number of processes, or a rank was given something else than another; `training` is its optimizer, seed and
    whether changes are tracked.
    """
    world_size = dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1
    plan = plan or Plan.default(tables, world_size)
    plan.check(tables)
    if plan.world_size == 1:
        return None
    if plan.world_size != world_size:
        raise ConfigError(f"plan: it is for {plan.world_size} processes, but {world_size} are running")
    crossing = Crossing(tables, features, plan, group)
    crossing.require_same("optimizer, seed or track_changes", training)
    return crossing
