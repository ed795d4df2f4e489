"""`EmbeddingCollection`: the tables of a model, looked up together and updated in backward."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from lanner.data.batch import Bags
from lanner.embedding import checks, persistence, tables
from lanner.embedding.fused import FusedLookup
from lanner.embedding.initializers import Initializer
from lanner.embedding.joint import JointTable, allocate
from lanner.embedding.optimizers import SGD, Optimizer
from lanner.embedding.pending import Pending, merge
from lanner.embedding.tables import FeatureConfig, TableConfig
from lanner.errors import ConfigError, DataError
from lanner.kernels.layout import POOLINGS
from lanner.kernels.lookup import lookup
from lanner.kernels.memory import empty_tensor
from lanner.kernels.update import update
from lanner.schema import Schema

_counting = threading.Lock()


class EmbeddingCollection(nn.Module):
    """Embedding tables with a fused optimizer.

    ``forward(bags)`` gives [B, sum of the features' dims], features in the order given. In training mode, with
    gradients on, backward sums the gradients of equal ids and takes one optimizer step on each row that occurred;
    there is nothing for a `torch.optim` optimizer to do. Each backward is one step (see `defer_updates` for more
    than one backward a step). Tables are not parameters and not in `state_dict`: `embedding_dump` and
    `embedding_load` store them. Forward may run in several threads at once; training may not.

    An id outside its table raises IdRangeError (`out_of_range="error"`), or takes row 0 of the table and is counted
    in `unknown_ids` (`out_of_range="unknown"`). No gradient flows to the per-id weights of the bags.

    Attributes:
        learning_rate_scale: multiplied into every learning rate; set it at each step for a schedule.
        steps: optimizer steps taken (for Adam's bias correction).
        defer_updates: when True, backward only stores its gradients until `apply_updates` or `drop_updates`.
        unknown_ids: by feature, how many ids were out of range so far.
    """

    def __init__(
        self,
        tables: Sequence[TableConfig],
        features: Sequence[FeatureConfig],
        optimizer: Optimizer = SGD(0.01),
        backend: Literal["auto", "cpu", "reference"] = "auto",
        seed: int = 0,
        out_of_range: Literal["error", "unknown"] = "error",
    ) -> None:
        super().__init__()
        _check(tables, features, backend, out_of_range)
        self.tables, self.features = tuple(tables), tuple(features)
        self.backend: Literal["cpu", "reference"] = "reference" if backend == "reference" else "cpu"
        self.out_of_range = out_of_range
        self.optimizer, self.learning_rate_scale, self.steps = optimizer, 1.0, 0
        self.defer_updates = False
        self.unknown_ids = {feature.name: 0 for feature in self.features}
        self.anchor = nn.Parameter(torch.zeros(()))  # makes autograd reach backward; requires_grad_(False) freezes
        self._configs = {table.name: table for table in self.tables}
        self._joint = allocate(self.tables, optimizer, seed)
        self._dims = [self._configs[feature.table].dim for feature in self.features]
        self._max = any(feature.pooling == "max" for feature in self.features)
        self._layouts: dict[tuple[str, ...], list[tuple[JointTable, np.ndarray]]] = {}
        self._pending: list[Pending] = []

    @classmethod
    def from_schema(
        cls,
        schema: Schema,
        dim: int,
        optimizer: Optimizer = SGD(0.01),
        initializer: Initializer | None = None,
        **options: Any,
    ) -> EmbeddingCollection:
        """The tables and features of a fitted schema, all of width `dim`; `options` are the constructor's."""
        return cls(*tables.from_schema(schema, dim, initializer), optimizer=optimizer, **options)

    @property
    def width(self) -> int:
        """Columns of the output: the sum of the features' dims."""
        return sum(self._dims)

    def forward(self, bags: Bags) -> Tensor:
        """[B, width] float32.

        Raises DataError naming the feature where the bags do not fit together, and IdRangeError naming table,
        feature and id where an id is outside its table; no row outside the right table is ever read.
        """
        if self.training and self.anchor.requires_grad and torch.is_grad_enabled():
            out: Tensor = FusedLookup.apply(self.anchor, self, checks.usable(bags))  # type: ignore[no-untyped-call]
            return out
        return self.lookup(checks.usable(bags))

    def lookup(self, bags: Bags, winners: Tensor | None = None) -> Tensor:
        """`forward` of checked bags, without autograd; `winners` [B, width] int32 notes where maxima came from."""
        layouts = self._layouts.get(bags.names) or self._make_layouts(bags.names)
        out = empty_tensor((bags.batch_size, self.width))
        strays = False
        for joint, layout in layouts:
            strays |= lookup(
                joint.weights, layout, bags.values, bags.offsets, bags.weights, bags.batch_size, out.view(-1),
                None if winners is None else winners.view(-1), backend=self.backend,
            )  # fmt: skip
        if strays:
            self._stray(bags)
        return out

    def forward_for_backward(self, bags: Bags) -> tuple[Tensor, Tensor | None]:
        """The output, and the winners of max pooling that backward needs."""
        winners = torch.empty((bags.batch_size, self.width), dtype=torch.int32) if self._max else None
        return self.lookup(bags, winners), winners

    def take_gradient(self, pending: Pending) -> None:
        """Take the optimizer step of one backward, or store it when updates are deferred."""
        if self.defer_updates:
            self._pending.append(pending)
        else:
            self._update(pending, 1.0)

    @property
    def deferred_gradients(self) -> tuple[Tensor, ...]:
        """Gradients [B, width] waiting for `apply_updates`, e.g. to look for infinities."""
        return tuple(pending.gradient for pending in self._pending)

    def apply_updates(self, gradient_scale: float = 1.0) -> None:
        """Take one optimizer step with the sum of all deferred gradients, each multiplied by `gradient_scale`."""
        pending, self._pending = self._pending, []
        if pending:
            self._update(merge(pending), gradient_scale)

    def drop_updates(self) -> None:
        """Forget the deferred gradients."""
        self._pending = []

    def weight(self, table: str) -> Tensor:
        """The rows [rows, dim] of a table: a view, not a copy."""
        joint = self._home(table)
        return joint.weights[joint.spans[table]]

    def state(self, table: str) -> dict[str, Tensor]:
        """The optimizer state of a table by name: views [rows, dim] or, row-wise, [rows]."""
        joint = self._home(table)
        return {name: state[joint.spans[table]] for name, state in joint.states.items()}

    def table_optimizer(self, table: str) -> Optimizer:
        """The optimizer that updates a table."""
        return self._home(table).optimizer

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Use `optimizer` for every table that has none of its own; all optimizer state and `steps` start afresh."""
        self.optimizer, self.steps = optimizer, 0
        for joint in self._joint:
            joint.set_optimizer(joint.own_optimizer or optimizer)

    def bytes(self) -> int:
        """Bytes of all weights and optimizer states."""
        return sum(joint.nbytes() for joint in self._joint)

    def embedding_dump(self, path: str | os.PathLike[str], table_names: Sequence[str] | None = None) -> None:
        """Write tables to `path` (any URI); see `lanner.embedding.persistence`."""
        persistence.dump(self, path, table_names)

    def embedding_load(
        self, path: str | os.PathLike[str], table_names: Sequence[str] | None = None, optimizer_state: bool = True
    ) -> None:
        """Read tables from `path` (any URI); see `lanner.embedding.persistence`."""
        persistence.load(self, path, table_names, optimizer_state)

    def extra_repr(self) -> str:
        return f"{len(self.tables)} tables, {len(self.features)} features, width={self.width}, {self.optimizer}"

    def _update(self, pending: Pending, gradient_scale: float) -> None:
        self.steps += 1
        bags, gradient = pending.bags, pending.gradient
        for joint, layout in self._layouts[bags.names]:
            step = joint.step(self.steps, self.learning_rate_scale, gradient_scale)
            states = tuple(joint.states.values())
            update(
                joint.weights, states, gradient.view(-1), layout, bags.values, bags.offsets, bags.weights,
                bags.batch_size, None if pending.winners is None else pending.winners.view(-1), step,
                backend=self.backend,
            )  # fmt: skip

    def _home(self, table: str) -> JointTable:
        for joint in self._joint:
            if table in joint.spans:
                return joint
        raise KeyError(f"no table {table!r}; there are {', '.join(self._configs)}")

    def _make_layouts(self, names: tuple[str, ...]) -> list[tuple[JointTable, np.ndarray]]:
        """How the features lie in bags with features `names`, for each joint table."""
        for feature in self.features:
            if feature.name not in names:
                raise DataError(f"bags: feature {feature.name!r} is missing; they hold {', '.join(names) or 'none'}")
        lines: dict[int, list[tuple[int, ...]]] = {index: [] for index in range(len(self._joint))}
        column = 0
        for feature, dim in zip(self.features, self._dims, strict=True):
            joint = self._home(feature.table)
            span = joint.spans[feature.table]
            place = (
                names.index(feature.name),
                span.start,
                span.stop - span.start,
                POOLINGS[feature.pooling],
                column,
                self.width,
            )
            lines[self._joint.index(joint)].append(place)
            column += dim
        self._layouts[names] = [
            (joint, np.array(sorted(lines[index], key=lambda line: line[1]), np.int64))
            for index, joint in enumerate(self._joint)
        ]
        return self._layouts[names]

    def _stray(self, bags: Bags) -> None:
        """Some ids lie outside their tables: raise, or count them."""
        for bad in checks.out_of_range(bags, self.features, self._configs):
            if self.out_of_range == "error":
                raise checks.range_error(bad)
            with _counting:
                self.unknown_ids[bad.feature.name] += bad.strays

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Nothing: tables have files of their own, and the anchor is always 0."""

    def _load_from_state_dict(self, *_: Any) -> None:
        """Nothing; see `_save_to_state_dict`."""


def _check(
    given: Sequence[TableConfig], features: Sequence[FeatureConfig], backend: object, out_of_range: object
) -> None:
    tables.check(given, features)
    for what, value, known in (
        ("backend", backend, ("auto", "cpu", "reference")),
        ("out_of_range", out_of_range, ("error", "unknown")),
    ):
        if value not in known:
            raise ConfigError(f"embedding: {what} is {value!r}, expected one of {', '.join(known)}")
