"""How much memory training takes: tables, optimizer state and indexes to the byte, the rest by a model.

The model of buffers and of the process is held to measured resident memory by `benchmarks/memory.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lanner.embedding.backed.config import Backing
from lanner.embedding.dynamic import footprint
from lanner.embedding.planner.workload import Load, Workload, state_bytes
from lanner.embedding.sharding.placement import Placement, Plan
from lanner.embedding.sharding.shards import Shard, is_dynamic
from lanner.kernels import parallel

Bytes = NDArray[np.float64]

PARTS = ("weights", "state", "index", "buffers", "dense", "process")
"""What holds memory: rows, their optimizer state, what finds the rows of dynamic tables and notes their use, what a
step needs for its time, the dense side, and the process itself."""

PROCESS = 600 << 20
"""Interpreter, PyTorch, compiled kernels, thread stacks and the libraries' own buffers, measured on Linux."""

ITEM = {"fp32": 4, "fp16": 2, "bf16": 2}
"""Bytes of a number in the formats of rows."""

_ROUNDED = 1.125  # buffers come in 8 sizes to each power of two
_KEPT_OUTPUTS = 2 * _ROUNDED  # the output and its gradient
_KEPT_ACTIVATIONS = 1.25  # inputs and outputs of products share memory, but have gradients
_BATCHES = 4  # batches read ahead or in use
_EVALUATION = 4096  # rows that are evaluated at once where batches are smaller
_EXCHANGED = 2 * _ROUNDED  # rows and their gradients in buffers whose size differs a little from step to step


def needed(workload: Workload, plan: Plan) -> Bytes:
    """Bytes by part and rank [parts, ranks]."""
    total = base(workload, plan.world_size)
    for load in workload.loads:
        total[:4] += of_table(load, plan.tables[load.name], workload.batch_size, plan.world_size)
    if workload.backing is not None:
        total[:2] -= _on_disk(workload, plan, workload.backing)
    return total


def _on_disk(workload: Workload, plan: Plan, backing: Backing) -> Bytes:
    """Weights and state that are not in memory, by rank [2, ranks]; rows in memory count as weights altogether."""
    found = np.zeros((2, plan.world_size))
    for rank in range(plan.world_size):
        own = {
            load.name: (load, shard)
            for load in workload.loads
            for at, shard in _shards(load, plan.tables[load.name], plan.world_size)
            if at == rank
        }
        static = [shard.config for load, shard in own.values() if not is_dynamic(load.table)]
        for name, share in backing.shares(static, backing.chosen(static)).items():
            weights, state, _ = held(*own[name])
            found[:, rank] += weights - min(share, weights + state), state
    return found


def _shards(load: Load, placement: Placement, ranks: int) -> Iterator[tuple[int, Shard]]:
    """The ranks that hold a part of a table, and which."""
    groups = placement.groups
    if not groups:
        yield from ((rank, Shard(load.table)) for rank in range(ranks))
    for block, group in enumerate(groups):
        for share, rank in enumerate(group):
            yield rank, Shard(load.table, block, len(groups), share, len(group))


def base(workload: Workload, ranks: int) -> Bytes:
    """What does not depend on where tables lie [parts, ranks]."""
    own = [0, 0, 0, _step_buffers(workload, ranks), _dense(workload, ranks), PROCESS]
    return np.repeat(np.array(own, np.float64)[:, None], ranks, axis=1)


def of_table(load: Load, placement: Placement, batch_size: int, ranks: int) -> Bytes:
    """Weights, state, index and exchange buffers of one table by rank [4, ranks]."""
    found = np.zeros((4, ranks))
    for rank, shard in _shards(load, placement, ranks):
        found[:3, rank] = held(load, shard)
    if ranks > 1:
        found[3] = _exchange_buffers(load, placement, batch_size, ranks)
    return found


def held(load: Load, shard: Shard) -> tuple[float, float, float]:
    """Bytes of weights, state and index of one part of a table."""
    config, state = shard.config, state_bytes(load.optimizer, shard.dim)
    if not is_dynamic(config):
        return config.static_rows * shard.dim * ITEM[config.dtype], config.static_rows * state, 0
    rows = min(-(-load.rows // shard.shares), footprint.most_rows(config, load.optimizer))
    weights, states = rows * shard.dim * ITEM[config.dtype], rows * state
    keys = None if load.keys is None else -(-load.keys // shard.shares)
    return weights, states, footprint.bytes_for(config, load.optimizer, rows, keys) - weights - states


def _step_buffers(workload: Workload, ranks: int) -> float:
    """The output and its gradient, activations, batches read ahead, and what the kernels work in."""
    samples, dense, loads = workload.batch_size / ranks, workload.dense, workload.loads
    width = 4 * sum(load.vectors * load.table.dim for load in loads)
    activations = 4 * dense.activations
    training = samples * (width * _KEPT_OUTPUTS + activations * _KEPT_ACTIVATIONS)
    evaluating = max(_EVALUATION / ranks, samples) * (width + activations) if dense.weights else 0.0
    batches = _BATCHES * samples * (8 * sum(load.ids for load in loads) + 4 * (dense.inputs + 2))
    return max(training, evaluating) + batches + _kernel_scratch(workload, ranks)


def _kernel_scratch(workload: Workload, ranks: int) -> float:
    """Every thread sorts the ids of a table, two words each, and lays out the gradients that they bring."""
    samples, most = workload.batch_size / ranks, 0.0
    for load in workload.loads:
        arriving = ranks * load.distinct(samples) if ranks > 1 else 0.0
        ids, gradients = load.ids * samples, load.vectors * samples
        most = max(most, 16 * max(ids, arriving) + 4 * load.table.dim * max(gradients, arriving))
    return parallel.threads() * most * _ROUNDED


def _exchange_buffers(load: Load, placement: Placement, batch_size: int, ranks: int) -> Bytes:
    """Rows that a rank asks for and rows that it is asked for, there and back as gradients, with their ids [ranks]."""
    asked, groups = load.distinct(batch_size / ranks), placement.groups
    if not groups:
        return np.full(ranks, _ROUNDED * (2 * ranks + 1) * asked * (4 * load.table.dim + 16))
    rows = np.full(ranks, asked * len(groups), np.float64)
    for group in groups:
        rows[list(group)] += ranks * asked / len(group)
    return rows * _EXCHANGED * (4 * load.table.dim / len(groups) + 16)


def _dense(workload: Workload, ranks: int) -> float:
    """Weights, gradients, optimizer state, the copy that a checkpoint makes, the buckets in which ranks average."""
    dense = workload.dense
    return dense.weights * (4 * (3 + (ranks > 1)) + 2 * dense.state)
