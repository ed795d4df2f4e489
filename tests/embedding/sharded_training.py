"""A collection trained on any number of ranks, each with its share of every batch, and what they end up with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from lanner.data.batch import Bags
from lanner.embedding import SGD, EmbeddingCollection, FeatureConfig, TableConfig
from lanner.embedding.arrangement import Jagged
from lanner.embedding.sharding import Plan

Outcome = dict[str, np.ndarray]

DYNAMIC_KEYS = 40
"""Keys that occur in dynamic tables: 0, 1, ..."""


@dataclass(frozen=True)
class Problem:
    """Tables, features and how to train them on random bags, in which few ids repeat often."""

    tables: list[TableConfig]
    features: list[FeatureConfig]
    optimizer: Any = field(default_factory=lambda: SGD(0.01))
    steps: int = 20
    batch: int = 12
    longest: int | None = 4  # ids of a bag; None: one-hot
    weighted: bool = False
    permuted: bool = False
    ahead: bool = False  # prepare each batch while the one before is computed
    deferred: int = 1  # backward passes to a step
    schedule: bool = False  # a learning rate that falls
    options: dict[str, Any] = field(default_factory=dict)

    def share(self, step: int, rank: int, world_size: int) -> Bags:
        """The samples of one rank at one step; at every third step the last rank has them all."""
        rng = np.random.default_rng(step)
        rows = {table.name: DYNAMIC_KEYS if table.rows == "dynamic" else table.rows for table in self.tables}
        longest = self.longest or 1
        ids = np.stack([rng.integers(0, rows[f.table], (self.batch, longest)) for f in self.features])
        lengths = rng.integers(0 if self.longest else 1, longest + 1, ids.shape[:2])
        weights = rng.random(ids.shape, np.float32)
        order = rng.permutation(self.batch) if self.permuted else np.arange(self.batch)
        cuts = np.sort(rng.integers(0, self.batch + 1, 9)[: world_size - 1]) * (step % 3 != 0)
        begin, end = np.concatenate([[0], cuts, [self.batch]])[rank : rank + 2]
        own = order[begin:end]
        real = np.arange(longest) < lengths[:, own, None]
        values, factors = (torch.from_numpy(each[:, own][real]) for each in (ids, weights))
        names = tuple(feature.name for feature in self.features)
        if self.longest is None:
            return Bags(names, values, None, factors if self.weighted else None)
        flat = torch.from_numpy(lengths[:, own].reshape(-1))
        return Bags.from_lengths(names, values, flat, factors if self.weighted else None)


def train(rank: int, problem: Problem, plan: Plan | None = None) -> Outcome:
    """Outputs of all steps, and of this rank's part of every table keys, columns, weights and states, by name."""
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    model = EmbeddingCollection(problem.tables, problem.features, problem.optimizer, plan=plan, **problem.options)
    model.defer_updates = problem.deferred > 1
    outcome: Outcome = {}
    coming = model.prepare(problem.share(0, rank, world_size)) if problem.ahead else None
    for step in range(problem.steps):
        if problem.schedule:
            model.learning_rate_scale = 1 / (1 + step)
        given = coming or problem.share(step, rank, world_size)
        if problem.ahead and step + 1 < problem.steps:
            coming = model.prepare(problem.share(step + 1, rank, world_size))
        outputs = _vectors(model(given))
        outcome |= {f"output {step} {name}": each.detach().numpy() for name, each in outputs.items()}
        (world_size * sum(_loss(each) for each in outputs.values())).backward()
        if problem.deferred > 1 and (step + 1) % problem.deferred == 0:
            model.apply_updates(1 / problem.deferred)
    model.eval()
    outputs = _vectors(model(problem.share(1000, rank, world_size)))
    outcome |= {f"output at last {name}": each.numpy() for name, each in outputs.items()}
    return outcome | tables_of(model)


def _vectors(output: Any) -> dict[str, Tensor]:
    if isinstance(output, Tensor):
        return {"": output}
    return {name: each.values if isinstance(each, Jagged) else each for name, each in output.items()}


def _loss(vectors: Tensor) -> Tensor:
    """Something whose gradient is different in every column and depends on every value."""
    return (vectors**2 + torch.linspace(-1, 1, vectors.shape[-1]) * torch.sin(3 * vectors)).sum()


def tables_of(model: EmbeddingCollection) -> Outcome:
    """What this rank has of every table."""
    outcome = {}
    for name, shard in model.shards.items():
        blocks = [{"keys": rows.keys, "weights": rows.weights, **rows.states} for rows in model.blocks(name)]
        whole = {part: np.concatenate([block[part] for block in blocks]) for part in blocks[0]} if blocks else {}
        order = np.argsort(whole["keys"]) if whole else []
        outcome |= {f"table {name} {part}": values[order] for part, values in whole.items()}
        outcome[f"columns of {name}"] = np.arange(shard.table.dim)[shard.columns]
    return outcome
