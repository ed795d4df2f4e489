"""How long a step keeps each rank busy, from the bytes it moves.

Every estimate is bytes by bandwidth. `Devices.bandwidth` is that of a copy (bytes read and written); `_LOOKUP` and
`_UPDATE` say how much longer than a copy of as many bytes the kernels take, which read and write rows at random
places. A step of a table on several ranks is

    asking rank   finds its distinct ids, pools the rows that came, sums gradients by distinct id
    owning rank   looks rows up, steps each distinct row with the gradients of all ranks

so that the owners' work alone depends on the placement. Ids are taken as evenly spread over the rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lanner.embedding.planner.devices import Devices
from lanner.embedding.planner.memory import ITEM
from lanner.embedding.planner.workload import Load, Workload, state_bytes
from lanner.embedding.sharding.columns import Needs
from lanner.embedding.sharding.placement import Placement

Seconds = NDArray[np.float64]

PHASES = ("lookup", "exchange", "update", "dense")
"""Parts of a step. Ranks wait for each other at each exchange, so a step takes the longest of each."""

LOOKUP, EXCHANGE, UPDATE, DENSE = range(4)

_LINE = 64  # bytes of a cache line: less cannot be read
_LOOKUP, _UPDATE = 1.3, 1.3
_SORTED = 48  # bytes moved to sort one id by its row: some passes over an 8-byte word
_DISTINCT = 64  # bytes moved to find the distinct ids of a batch, by id
_ACROSS = 24  # passes over the gradients of rows cut by columns for an optimizer that looks at whole rows
_TABLE = 2e-5  # seconds to handle a table, whatever its size
_RUN = 1e-5  # seconds to handle what one rank asks of one table of another
_MEET = 2e-3  # seconds that the exchanges of a step take when there is nothing to send


def base(workload: Workload, devices: Devices) -> Seconds:
    """What does not depend on where tables lie, by phase and rank [phases, ranks]."""
    found = np.zeros((len(PHASES), devices.count))
    found[UPDATE] = _TABLE * len(workload.loads)
    found[EXCHANGE] = _MEET if devices.count > 1 else 0.0
    found[DENSE] = _dense(workload, devices)
    return found


def of_table(load: Load, placement: Placement, devices: Devices, batch_size: int) -> Seconds:
    """What one table costs in a step of `batch_size` samples over all ranks, by phase and rank [phases, ranks]."""
    ranks, samples, dim = devices.count, batch_size / devices.count, load.table.dim
    found = np.zeros((len(PHASES), ranks))
    asked, ids, vectors = load.distinct(samples), load.ids * samples, load.vectors * samples
    if ranks == 1 or placement.kind == "data":
        found[LOOKUP] = _read(load, ids, dim) + 4 * dim * vectors + 8 * ids
    else:
        found[LOOKUP] = _DISTINCT * ids + 4 * dim * (ids + vectors)
    if ranks == 1:
        found[UPDATE] = _stepped(load, ids, vectors, asked, dim)
    else:
        found[UPDATE] = _summed(ids, vectors, dim) + 8 * dim * asked
        _add_owners(found, load, placement, asked, load.distinct(batch_size), ranks)
        found[EXCHANGE] = _exchange(load, placement, devices, asked)
    found[LOOKUP] *= _LOOKUP / devices.bandwidth
    found[UPDATE] *= _UPDATE / devices.bandwidth
    if ranks > 1:
        found[EXCHANGE] += _RUN * _runs(placement, ranks)
    return found


def _add_owners(found: Seconds, load: Load, placement: Placement, asked: float, distinct: float, ranks: int) -> None:
    """Bytes that the owners move for all ranks; every rank owns a replicated table."""
    dim, groups = load.table.dim, placement.groups
    if not groups:
        found[UPDATE] += _stepped(load, ranks * asked, ranks * asked, distinct, dim)
    for group in groups:
        came, block, owners = ranks * asked / len(group), dim // len(groups), list(group)
        found[LOOKUP, owners] += _read(load, came, block) + 4 * block * came
        found[UPDATE, owners] += _stepped(load, came, came, distinct / len(group), block)
        if len(groups) > 1 and any(Needs.of([load.optimizer])):
            found[UPDATE, owners] += _ACROSS * 4 * block * came


def _read(load: Load, ids: float, dim: int) -> float:
    return ids * max(dim * ITEM[load.table.dtype], _LINE)


def _summed(ids: float, vectors: float, dim: int) -> float:
    """Bytes to sort ids and to lay out and read the gradients that they bring."""
    return _SORTED * ids + 4 * dim * (3 * vectors + max(ids - vectors, 0.0))


def _stepped(load: Load, ids: float, vectors: float, distinct: float, dim: int) -> float:
    """Bytes of an update: `_summed`, and each distinct row and its state read and written."""
    state = state_bytes(load.optimizer, dim)
    row = max(dim * ITEM[load.table.dtype], _LINE) + (max(state, _LINE) if state else 0)
    return _summed(ids, vectors, dim) + 2 * distinct * row


def _exchange(load: Load, placement: Placement, devices: Devices, asked: float) -> Seconds:
    """Seconds by rank: ids and gradients to the owners, rows back; of replicated tables ids and gradients to all."""
    ranks, groups = devices.count, placement.groups
    sent = np.zeros((ranks, ranks))
    if not groups:
        sent[:] = asked * (8 + 4 * load.table.dim)
    for group in groups:
        rows = 4 * load.table.dim / len(groups) * asked / len(group)
        sent[:, list(group)] += 8 * asked / len(group) + rows
        sent[list(group), :] += rows
    seconds: Seconds = sent / devices.paths()
    slower: Seconds = np.maximum(seconds.sum(0), seconds.sum(1))
    return slower


def _runs(placement: Placement, ranks: int) -> Seconds:
    """Pairs of ranks that a rank deals with for one table, as asking and as owning one [ranks]."""
    if not placement.groups:
        return np.full(ranks, 1.0 + ranks)
    runs = np.full(ranks, float(len(placement.used)))
    runs[list(placement.used)] += ranks
    return runs


def _dense(workload: Workload, devices: Devices) -> float:
    """Products of forward and backward, passes over the activations, and averaging gradients over ranks."""
    samples, ranks, dense = workload.batch_size / devices.count, devices.count, workload.dense
    products = 6 * dense.weights * samples / devices.compute
    passes = 5 * 4 * dense.activations * samples / devices.bandwidth
    averaging = 2 * 4 * dense.weights * (ranks - 1) / ranks / float(devices.paths().min())
    return products + passes + averaging
