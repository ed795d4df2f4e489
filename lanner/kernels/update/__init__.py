"""Embedding backward and optimizer step in one pass over the batch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lanner.kernels import backends, parallel
from lanner.kernels.backends import Backend
from lanner.kernels.formats import array_of
from lanner.kernels.lanes import lanes_for
from lanner.kernels.layout import FEATURE, FIRST_ROW, NONE, POOLING, ROWS
from lanner.kernels.memory import scratch
from lanner.kernels.update import cpu, reference
from lanner.kernels.update.grouping import group
from lanner.kernels.update.names import STREAM, UNNAMED, Names, lines_of
from lanner.kernels.update.rules import STATES, Rule, Step, numbers_of

__all__ = ["STATES", "UNNAMED", "Names", "Rule", "Step", "update"]

Array = np.ndarray[Any, Any]

_NO_FLOATS, _NO_LONGS, _NO_INTS = (np.empty(0, kind) for kind in (np.float32, np.int64, np.int32))
_GRAIN = 1 << 12  # ids worth a thread of its own: about 200 microseconds


def update(
    weights: Tensor,
    states: tuple[Tensor, ...],
    gradient: Tensor,
    layout: Array,
    values: Tensor,
    offsets: Tensor | None,
    factors: Tensor | None,
    batch: int,
    winners: Tensor | None,
    step: Step,
    seed: int = 0,
    names: Names = UNNAMED,
    backend: Backend = "auto",
) -> None:
    """Take one optimizer step on every row that occurs in the bags, in place.

    `gradient`, flat, is the gradient of what `lookup` wrote with the same layout, bags and `winners`. The
    gradients of equal ids (of all features that share the table) are summed first; each distinct row then takes one
    step. The sums run in the order of the ids, so the result is the same for any number of threads, and differs by
    rounding only when the batch is permuted. `states` are those of `step.rule` (see `STATES`). All arrays are
    contiguous.

    `weights` are float32, float16 or bfloat16. The latter are stepped in float32 and rounded at random, so that steps
    far below their precision add up, by bits that depend on `seed` (0 to 2^64 - 1; give every step another one), on
    what the row is called by `names`, and on the column alone.
    """
    backend = backends.chosen(backend, weights)
    if backend == "gpu":
        kernels = backends.gpu("update")
        with torch.cuda.device_of(weights):  # type: ignore[no-untyped-call]
            kernels.update(
                weights, states, gradient, layout, values, offsets, factors, batch, winners, step, seed, names
            )
        return
    if backend == "reference":
        reference.update(weights, states, gradient, layout, values, offsets, factors, batch, winners, step, seed, names)
        return
    dim, counts = weights.shape[1], _counts(layout, offsets, batch)
    tasks, largest = _tasks(layout, counts)
    if not largest:
        return
    table = lanes_for(dim), array_of(weights), dim, *[*map(array_of, states), _NO_FLOATS, _NO_FLOATS][:2]
    ids = layout, values.numpy(), *(_array(*pair) for pair in ((offsets, _NO_LONGS), (factors, _NO_FLOATS)))
    each = factors is not None or winners is not None or bool((layout[:, POOLING] == NONE).any())
    gradients = _array(gradient, _NO_FLOATS), _array(winners, _NO_INTS), batch, dim, each
    slots = largest if each else _most_bags(tasks) * batch
    how, keys = (int(step.rule), np.array(numbers_of(step), np.float32)), _array(names.keys, _NO_LONGS)

    def work(begin: int, end: int) -> None:
        words, spare = scratch("words", largest, np.uint64), scratch("spare", largest, np.uint64)
        packed, row = scratch("packed", slots * dim, np.float32), scratch("row", dim, np.float32)
        for task in tasks[begin:end]:
            ordered, count = group(task, *ids, *gradients, words, spare, packed)
            first_row, shift = layout[task[0], FIRST_ROW], 64 - int(task[4])
            name = lines_of(names, first_row)
            stream = np.uint64((seed + int(name[STREAM])) % (1 << 64))
            cpu.apply(*table, packed, first_row, ordered, count, shift, *how, stream, name, keys, row)

    if counts.sum() < 2 * _GRAIN:
        work(0, len(tasks))
    else:
        parallel.run(work, len(tasks), pieces_per_thread=len(tasks))


def _counts(layout: Array, offsets: Tensor | None, batch: int) -> Array:
    """Number of ids of every line of the layout."""
    if offsets is None:
        return np.full(len(layout), batch)
    ends, first = offsets.numpy(), layout[:, FEATURE] * batch
    return np.asarray(ends[first + batch] - ends[first])


def _tasks(layout: Array, counts: Array) -> tuple[Array, int]:
    """What threads share out: (first line, last line, part, parts, bits of a row number), and the most ids of one.

    A table with more than its share of the ids is cut into parts by rows; each part reads all ids of the table.
    """
    bounds = [0, *(np.flatnonzero(np.diff(layout[:, FIRST_ROW])) + 1).tolist(), len(layout)]
    share = max(int(counts.sum()) // parallel.threads(), _GRAIN)
    tasks, largest = [], 0
    for first, last in pairwise(bounds):
        count = int(counts[first:last].sum())
        parts = 1
        while count > share * parts * 1.5:
            parts *= 2
        bits = max(int(layout[first, ROWS] - 1).bit_length(), 1)
        tasks += [(first, last, part, parts, bits) for part in range(parts)]
        largest = max(largest, count)
    return np.array(tasks, np.int64), largest


def _most_bags(tasks: Array) -> int:
    """The most lines that share a table."""
    return int((tasks[:, 1] - tasks[:, 0]).max())


def _array(tensor: Tensor | None, otherwise: Array) -> Array:
    return otherwise if tensor is None else tensor.numpy().reshape(-1)
