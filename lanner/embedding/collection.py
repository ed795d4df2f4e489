"""`EmbeddingCollection`: the tables of a model, looked up together and updated in backward."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from lanner.data.batch import Bags
from lanner.embedding import checks, persistence, tables
from lanner.embedding.arrangement import Arrangement, Output, Vectors
from lanner.embedding.backed.config import Backing
from lanner.embedding.backed.holds import release
from lanner.embedding.backed.table import BackedTable
from lanner.embedding.device import device_of, require_held
from lanner.embedding.dynamic.table import DynamicTable
from lanner.embedding.fused import FusedLookup
from lanner.embedding.gradients import Backend, Part, Pending, moves
from lanner.embedding.initializers import Initializer
from lanner.embedding.joint import JointTable
from lanner.embedding.local import LocalTables
from lanner.embedding.named import catch_up, rows_in
from lanner.embedding.optimizers import SGD, Optimizer
from lanner.embedding.prepared import Prepared
from lanner.embedding.settings import EmbeddingSettings
from lanner.embedding.sharding.crossing import spread
from lanner.embedding.sharding.exchange import Wire
from lanner.embedding.sharding.placement import Plan
from lanner.embedding.sharding.sharded import ShardedTables, Visit
from lanner.embedding.sharding.shards import Shard
from lanner.embedding.stale import require_rows
from lanner.embedding.store import Rows, Store
from lanner.embedding.stores import stores_of
from lanner.embedding.tables import FeatureConfig, TableConfig
from lanner.errors import ConfigError
from lanner.kernels import backends
from lanner.kernels.memory import empty_tensor
from lanner.kernels.update import STATES, Step, update
from lanner.schema import Schema

_counting = threading.Lock()


class EmbeddingCollection(nn.Module):
    """Embedding tables with a fused optimizer.

    ``forward(bags)`` gives [B, sum of the features' dims], features in the order given (`output` has other forms, see
    `lanner.embedding.arrangement.Arrangement`). In training mode, with gradients on, backward sums the gradients of
    equal ids and takes one optimizer step on each row that occurred; there is nothing for a `torch.optim` optimizer to
    do. Each backward is one step (see `defer_updates` for more than one backward a step). Tables are not parameters
    and not in `state_dict`: `embedding_dump` and `embedding_load` store them. Forward may run in several threads at
    once; training may not.

    An id outside its table raises IdRangeError (`out_of_range="error"`), or takes row 0 of the table and is counted
    in `unknown_ids` (`out_of_range="unknown"`). No gradient flows to the per-id weights of the bags.

    Under `torch.distributed` with several processes, the tables are spread over the ranks of `group` (default: all)
    as `plan` says (default: `Plan.default`), and each rank looks up its own batch; a plan for one process keeps all
    of them here. Every rank must construct the collection alike and make the same calls in the same order; batches
    may differ, also in size, down to 0 samples. Gradients are averaged over the ranks, as those of
    `DistributedDataParallel` are. An error in the bags of one rank is raised on all of them. `weight` and `state`
    are those of this rank's part of a table, `shards` says which that is. `prepare` sends ids ahead.

    On a CUDA `device` (`to` moves the tables, as it does parameters) outputs lie there, and bags are copied there
    from the host. Dynamic tables, tables on disk and tables of several processes stay on the host.

    Attributes:
        learning_rate_scale: multiplied into every learning rate; set it at each step for a schedule.
        steps: optimizer steps taken (for Adam's bias correction).
        defer_updates: when True, backward only stores its gradients until `apply_updates` or `drop_updates`.
        unknown_ids: by feature, how many ids were out of range so far, on this rank.
        shards: by table, the part of it that is held here.
        origins: by table, the dumps that it was loaded from.
        ahead: how many batches it is of use to `prepare` ahead.
    """

    def __init__(
        self,
        tables: Sequence[TableConfig],
        features: Sequence[FeatureConfig],
        optimizer: Optimizer = SGD(0.01),
        backend: Literal["auto", "cpu", "reference", "gpu"] = "auto",
        seed: int = 0,
        out_of_range: Literal["error", "unknown"] = "error",
        output: Output = "batch",
        track_changes: bool = False,
        plan: Plan | None = None,
        group: ProcessGroup | None = None,
        backing: Backing | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__()
        checks.arguments(tables, features, optimizer, backend, out_of_range)
        if backing is not None:
            backing.check(tables)
        self.tables, self.features = tuple(tables), tuple(features)
        self._backend: backends.Backend = backend
        self.out_of_range = out_of_range
        self.optimizer, self.learning_rate_scale, self.steps = optimizer, 1.0, 0
        self.defer_updates, self.track_changes = False, track_changes
        self.unknown_ids = {feature.name: 0 for feature in self.features}
        self.origins: dict[str, persistence.Origin] = {}
        # Makes autograd reach backward and shows where parameters go; requires_grad_(False) freezes.
        self.anchor = nn.Parameter(torch.zeros((), device=device_of(device)))
        self._configs = {table.name: table for table in self.tables}
        dims = [self._configs[feature.table].dim for feature in self.features]
        self.arrangement = Arrangement(self.features, dims, output)
        crossing = spread(self.tables, self.features, plan, group, (optimizer, seed, track_changes))
        require_held(self.device, self.tables, backing is not None, crossing is not None)
        self.shards = crossing.shards if crossing else {table.name: Shard(table) for table in self.tables}
        configs = [shard.config for shard in self.shards.values()]
        self.stores = stores_of(configs, optimizer, seed, track_changes, backing, self.device)
        self._sharded = ShardedTables(crossing, self.stores, self.features, self.backend) if crossing else None
        self._homes = {name: store for store in self.stores for name in store.spans}
        self._local = LocalTables(self._homes, self.features, self._configs, self.arrangement)
        self.ahead = max(self._sharded is not None, backing.ahead if backing and self.tables_on_disk else 0)
        self._max = any(feature.pooling == "max" for feature in self.features)
        self._pending: list[Pending] = []

    @classmethod
    def from_schema(
        cls,
        schema: Schema,
        dim: int,
        optimizer: Optimizer = SGD(0.01),
        initializer: Initializer | None = None,
        settings: EmbeddingSettings | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> EmbeddingCollection:
        """The tables and features of a fitted schema, all of width `dim`.

        `settings` say more of single tables and go first; `options` are the constructor's.
        """
        settings = EmbeddingSettings.of(settings)
        of_schema, features = tables.from_schema(schema, dim, initializer)
        options = {"plan": settings.load_plan(), "backing": settings.load_backing(), **options}
        return cls(settings.applied(of_schema), features, optimizer=optimizer, **options)

    @property
    def device(self) -> torch.device:
        """Where the tables lie."""
        return self.anchor.device

    @property
    def backend(self) -> Backend:
        """The form of the kernels that runs."""
        backend = backends.chosen(self._backend, self.anchor)
        assert backend != "auto"
        return backend

    @property
    def width(self) -> int:
        """Columns of the output: the sum of the features' dims."""
        return self.arrangement.width

    def forward(self, bags: Bags) -> Vectors:
        """The vectors of all features, float32, in the form that `output` says; [B, width] by default.

        Raises DataError naming the feature where the bags do not fit together, and IdRangeError naming table,
        feature and id where an id is outside its table; no row outside the right table is ever read.
        """
        prepared = bags if isinstance(bags, Prepared) else self.prepare(bags)
        if prepared.training != self._learning:
            raise ConfigError("embedding: bags were prepared in training mode and looked up in another, or the reverse")
        if prepared.training:
            flat: Tensor = FusedLookup.apply(self.anchor, self, prepared)  # type: ignore[no-untyped-call]
        else:
            flat, _, _ = self.look_up(prepared)
            release(prepared.held)
        return self.arrangement.form(flat, prepared)

    def prepare(self, bags: Bags) -> Prepared:
        """Do at once what of `forward(bags)` does not depend on rows, and pass the result to `forward` instead.

        With several processes, ids then travel in the background while an earlier batch computes; rows on disk come
        into memory, where they stay until the result has been looked up and its step taken, or is dropped. Batches
        must be looked up in the order in which they were prepared, each once. Raises DataError where the bags do not
        fit together.
        """
        bags, training = checks.usable(bags, self.features, self.device), self._learning
        there = bags.to(self.device)
        plain = there.names, there.values, there.offsets, there.weights
        if self._sharded is not None:
            return Prepared(*plain, training, self._sharded.prepare(bags, training, self._stray))
        return Prepared(*plain, training, None, *self._local.hold(bags, training, self.backend))

    @property
    def _learning(self) -> bool:
        """Whether a forward now is to be followed by backward."""
        return self.training and self.anchor.requires_grad and torch.is_grad_enabled()

    def look_up(self, prepared: Prepared) -> tuple[Tensor, tuple[Part, ...] | Visit, Tensor | None]:
        """The flat output, without autograd, and what `take_gradient` needs beside its gradient."""
        training, total = prepared.training, self.arrangement.total(prepared)
        out = empty_tensor((total,), self.device)
        winners = torch.empty(total, dtype=torch.int32, device=self.device) if training and self._max else None
        if self._sharded is not None and prepared.trip is not None:
            places = self.arrangement.places(prepared)
            visit = self._sharded.visit(prepared.trip.result(), places, self.steps + 1 if training else None)
            self._sharded.lookup(visit, out, winners)
            return out, visit, winners
        parts, strays = self._local.lookup(prepared, self.steps + 1, out, winners, self.backend)
        if strays:
            self._stray(prepared)
        return out, parts, winners

    def take_gradient(self, pending: Pending) -> None:
        """Take the optimizer step of one backward, or store it when updates are deferred."""
        if self.defer_updates:
            self._pending.append(pending)
        else:
            self._update([pending], 1.0)

    @property
    def deferred_gradients(self) -> tuple[Tensor, ...]:
        """Gradients, flat, waiting for `apply_updates`, e.g. to look for infinities."""
        return tuple(pending.gradient for pending in self._pending)

    def apply_updates(self, gradient_scale: float = 1.0) -> None:
        """Take one optimizer step with the sum of all deferred gradients, each multiplied by `gradient_scale`."""
        pending, self._pending = self._pending, []
        if pending:
            self._update(pending, gradient_scale)

    def drop_updates(self) -> None:
        """Forget the deferred gradients."""
        for pending in self._pending:
            release(pending.holds)
        self._pending = []

    def weight(self, table: str) -> Tensor:
        """The rows [rows, dim] of a table: a view, not a copy. Raises ConfigError for a table on disk."""
        store = self._in_memory(table)
        return store.weights[store.spans[table]]

    def state(self, table: str) -> dict[str, Tensor]:
        """The optimizer state of a table by name: views [rows, dim] or, row-wise, [rows]; see `weight`."""
        store = self._in_memory(table)
        return {name: state[store.spans[table]] for name, state in store.states.items()}

    def blocks(self, table: str, since: int | None = None) -> Iterator[Rows]:
        """The rows held here, by the table's keys (see `Store.blocks`); the columns are those of `shards[table]`."""
        return map(self.shards[table].outward, self._home(table).blocks(table, since))

    def place(self, table: str, rows: Rows) -> None:
        """Put in what is held here of whole rows of a table (see `Store.place`)."""
        self._home(table).place(table, self.shards[table].inward(rows))

    def config(self, table: str) -> TableConfig:
        """What a table is."""
        return self._configs[table]

    def store(self, table: str) -> Store | None:
        """What holds this process's part of a table; None where it has none."""
        return self._homes.get(table)

    def groups(self, table: str) -> tuple[tuple[int, ...], ...]:
        """For each block of a table's columns the ranks that share its rows; of copies on all ranks only the first."""
        plan = self._sharded.crossing.plan if self._sharded else None
        return (plan.tables[table].groups if plan else ()) or ((0,),)

    @property
    def wire(self) -> Wire | None:
        """The way to the processes that the tables are spread over; None where all are here."""
        return self._sharded.crossing.wire if self._sharded else None

    def table_optimizer(self, table: str) -> Optimizer:
        """The optimizer that updates a table."""
        return self._configs[table].optimizer or self.optimizer

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Use `optimizer` for every table that has none of its own; all optimizer state and `steps` start afresh."""
        if self._sharded is not None:
            self._sharded.crossing.require_same("optimizer", optimizer)
        self.optimizer, self.steps = optimizer, 0
        for store in self.stores:
            store.set_optimizer(store.own_optimizer or optimizer)

    @property
    def dynamic_tables(self) -> dict[str, DynamicTable]:
        """The dynamic tables (with several processes: what is held of them here) by name."""
        return {store.name: store for store in self.stores if isinstance(store, DynamicTable)}

    def end_pass(self) -> None:
        """A pass over the training data has ended: dynamic tables count occurrences for `min_count` anew.

        So a key is let in by how often it occurs in the data, not by how often the data are gone through.
        """
        for table in self.dynamic_tables.values():
            table.end_pass()

    def bytes(self) -> int:
        """Bytes of memory for all weights and optimizer states."""
        return sum(store.nbytes() for store in self.stores)

    def disk_bytes(self) -> int:
        """Bytes of disk that the tables take which live there."""
        return sum(table.disk_bytes() for table in self.tables_on_disk.values())

    @property
    def tables_on_disk(self) -> dict[str, BackedTable]:
        """The tables that live on disk (with several processes: what is held of them here) by name."""
        return {store.name: store for store in self.stores if isinstance(store, BackedTable)}

    def embedding_dump(self, path: str | os.PathLike[str], table_names: Sequence[str] | None = None) -> None:
        """Write tables to `path` (any URI); see `lanner.embedding.persistence.dump`."""
        persistence.dump(self, path, table_names)

    def embedding_load(
        self, path: str | os.PathLike[str], table_names: Sequence[str] | None = None, optimizer_state: bool = True
    ) -> None:
        """Read tables from `path` (any URI); see `lanner.embedding.persistence.load`."""
        persistence.load(self, path, table_names, optimizer_state)

    def embedding_dump_delta(
        self,
        path: str | os.PathLike[str],
        parent: str | os.PathLike[str],
        table_names: Sequence[str] | None = None,
    ) -> None:
        """Write to `path` what changed since the dump `parent`; see `lanner.embedding.persistence.dump_delta`."""
        persistence.dump_delta(self, path, parent, table_names)

    def embedding_load_delta(self, path: str | os.PathLike[str], table_names: Sequence[str] | None = None) -> None:
        """Read what changed since the dump loaded last; see `lanner.embedding.persistence.load_delta`."""
        persistence.load_delta(self, path, table_names)

    def extra_repr(self) -> str:
        return f"{len(self.tables)} tables, {len(self.features)} features, width={self.width}, {self.optimizer}"

    def _update(self, pending: Sequence[Pending], gradient_scale: float) -> None:
        """One step with the sum of all pending gradients."""
        require_rows(pending, self.steps, self._sharded)
        self.steps += 1

        def step_of(store: Store) -> Step:
            scale = gradient_scale / (self._sharded.crossing.world_size if self._sharded else 1)
            return store.numbers(self.steps, self.learning_rate_scale, scale)

        if self._sharded is None:
            planned = moves(pending, step_of, self.backend)
        else:
            planned = self._sharded.moves(pending, step_of, self.optimizer)
        for store, gradient, layout, bags, winners, step in planned:
            catch_up([Part(store, layout, bags)], training=True)
            states = tuple(store.states.values())[: STATES[step.rule]]
            with store.lock if isinstance(store, DynamicTable) else nullcontext():  # dumps may run in another thread
                update(
                    store.weights, states, gradient, layout, bags.values, bags.offsets, bags.weights, bags.batch_size,
                    winners, step, self.steps, store.names, self.backend,
                )  # fmt: skip
            if store.keyed or self.track_changes or store.absence is not None:
                store.changed_rows(rows_in(layout, bags), self.steps)
        for store in self.stores:
            if store.absence is not None:
                store.absence.note(self.learning_rate_scale)
        for each in pending:
            release(each.holds)

    def _home(self, table: str) -> Store:
        if table not in self._homes:
            raise KeyError(f"no table {table!r} here; there are {', '.join(self._homes)}")
        return self._homes[table]

    def _in_memory(self, table: str) -> Store:
        store = self._home(table)
        if isinstance(store, BackedTable):
            raise ConfigError(f"table {table!r} lives on disk: it is no array; `blocks` gives its rows in turn")
        store.catch_up()
        return store

    def _stray(self, bags: Bags) -> None:
        """Some ids lie outside their tables: raise, or count them."""
        for bad in checks.out_of_range(bags, self.features, self._configs):
            if self.out_of_range == "error":
                raise checks.range_error(bad)
            with _counting:
                self.unknown_ids[bad.feature.name] += bad.strays

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> EmbeddingCollection:
        """What `to`, `cuda` and `cpu` call: tables go where parameters go."""
        device = device_of(fn(self.anchor.detach()).device)
        require_held(device, self.tables, bool(self.tables_on_disk), self._sharded is not None)
        for store in self.stores:
            if isinstance(store, JointTable) and store.weights.device != device:
                store.move(device)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Nothing: tables have files of their own, and the anchor is always 0."""

    def _load_from_state_dict(self, *_: Any) -> None:
        """Nothing; see `_save_to_state_dict`."""
