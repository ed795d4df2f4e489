"""Embedding backward and optimizer step in Triton: ids sorted by row, runs of equal rows summed and stepped.

The slots of the ids (see `gpu_slots`) are cut into tiles. A program loads all gradients of its tile at once, sums
each run of equal rows by a segmented scan, and steps the rows whose run lies within the tile. A run that crosses
tiles leaves a partial sum in each; a second kernel adds those up and takes the step. So every gradient is read once,
however the ids are distributed, sums have a fixed order, and nobody waits to learn how many distinct rows there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from lanner.kernels.gpu import OPTIONS, lanes_for, most_ids
from lanner.kernels.layout import OUT
from lanner.kernels.update.gpu_names import names_on
from lanner.kernels.update.gpu_rows import step_rows
from lanner.kernels.update.gpu_slots import slots_of
from lanner.kernels.update.names import Names
from lanner.kernels.update.rules import Step, numbers_of

_TILE = 1024  # elements of a tile


def update(
    weights: Tensor,
    states: tuple[Tensor, ...],
    gradient: Tensor,
    layout: np.ndarray[Any, Any],
    values: Tensor,
    offsets: Tensor | None,
    factors: Tensor | None,
    batch: int,
    winners: Tensor | None,
    step: Step,
    seed: int,
    names: Names,
) -> None:
    """See `lanner.kernels.update.update`."""
    count, (total, dim) = most_ids(layout, values, offsets, batch), weights.shape
    if not count:
        return
    slots = slots_of(layout, values, offsets, factors, batch, total, winners is not None)
    lanes = lanes_for(dim)
    size = max(_TILE // lanes, 1)
    tiles = triton.cdiv(count, size)
    parts = torch.empty(2 * tiles * dim, dtype=torch.float32, device=weights.device)
    table = (
        weights,
        states,
        tuple(map(float, numbers_of(step))),
        names_on(names, weights),
        seed,
        int(step.rule),
        dim,
        lanes,
        size,
    )
    options = {**OPTIONS, "num_warps": 4 if lanes <= _TILE else 16}
    aligned = not (dim % 4 or (layout[:, OUT:] % 4).any())
    _step_tiles[(tiles,)](slots, gradient, winners, parts, count, total, *table, aligned, **options)
    if tiles > 1:
        _step_long_runs[(tiles - 1,)](slots.rows, parts, count, total, *table, **options)


@triton.jit(do_not_specialize=["count", "total", "seed"])
def _step_tiles(
    sorted_slots: tl.tensor,
    gradient: tl.tensor,
    winners: tl.tensor,
    parts: tl.tensor,
    count: tl.int64,
    total: tl.int64,
    weights: tl.tensor,
    states: tl.tensor,
    numbers: tl.tensor,
    names: tl.tensor,
    seed: tl.uint64,
    rule: tl.constexpr,
    dim: tl.constexpr,
    lanes: tl.constexpr,
    size: tl.constexpr,
    aligned: tl.constexpr,
) -> None:
    """Sum the runs of one tile of slots; step those rows whose run ends here and started here.

    The sum of a run from the tile before goes to parts[2 * tile], that of one that only goes on to the next tile to
    parts[2 * tile + 1].
    """
    tile = tl.program_id(0).to(tl.int64)
    each, columns, sorted_rows = tl.arange(0, size), tl.arange(0, lanes), sorted_slots.rows
    slots = tile * size + each
    rows = tl.load(sorted_rows + slots, mask=slots < count, other=total).to(tl.int64)
    held = rows < total
    before = tl.load(sorted_rows + slots - 1, mask=held & (slots > 0), other=-1)
    after = tl.load(sorted_rows + slots + 1, mask=held & (slots + 1 < count), other=-1)
    came = tl.load(sorted_rows + tile * size - 1, mask=tile > 0, other=-1) == rows
    goes = tl.load(sorted_rows + (tile + 1) * size, mask=(tile + 1) * size < count, other=-1) == rows
    grads = _gradients(sorted_slots, gradient, winners, slots, held, dim, lanes, aligned)
    starts = tl.broadcast_to(((rows != before) | (each == 0)).to(tl.int32)[:, None], [size, lanes])
    sums, _ = tl.associative_scan((grads, starts), 0, _run_sum)
    ends = held & ((rows != after) | (each == size - 1))
    whole = ends & (came == 0) & (goes == 0)
    step_rows(rows, whole, sums, weights, states, numbers, names, seed, rule, dim, lanes)
    part = 2 * tile + tl.where(came, 0, 1)
    mask = (ends & (came | goes))[:, None] & (columns < dim)[None, :]
    tl.store(parts + part[:, None] * dim + columns[None, :], sums, mask=mask)


@triton.jit
def _gradients(
    sorted_slots: tl.tensor,
    gradient: tl.tensor,
    winners: tl.tensor,
    slots: tl.tensor,
    held: tl.tensor,
    dim: tl.constexpr,
    lanes: tl.constexpr,
    aligned: tl.constexpr,
) -> tl.tensor:
    """The gradients [n, lanes] of the ids of `slots`, 0 where not held."""
    ids, columns = tl.load(sorted_slots.order + slots, mask=held, other=0), tl.arange(0, lanes)
    starts = tl.load(sorted_slots.sources + ids, mask=held, other=0)
    if aligned:
        starts = tl.multiple_of(starts, 4)
    at = starts[:, None] + columns[None, :]
    mask = held[:, None] & (columns < dim)[None, :]
    if sorted_slots.places is not None:
        place = tl.load(sorted_slots.places + ids, mask=held, other=-1)[:, None]
        mask &= (place < 0) | (tl.load(winners + at, mask=mask & (place >= 0), other=-1) == place)
    grads = tl.load(gradient + at, mask=mask, other=0.0)
    if sorted_slots.scales is not None:
        grads *= tl.load(sorted_slots.scales + ids, mask=held, other=0.0)[:, None]
    return grads


@triton.jit
def _run_sum(sum1: tl.tensor, start1: tl.tensor, sum2: tl.tensor, start2: tl.tensor) -> tl.tensor:
    """Two neighbouring stretches of slots joined: the sum since the last start of a run, and whether there was one."""
    return tl.where(start2 != 0, sum2, sum1 + sum2), start1 | start2


@triton.jit(do_not_specialize=["count", "total", "seed"])
def _step_long_runs(
    sorted_rows: tl.tensor,
    parts: tl.tensor,
    count: tl.int64,
    total: tl.int64,
    weights: tl.tensor,
    states: tl.tensor,
    numbers: tl.tensor,
    names: tl.tensor,
    seed: tl.uint64,
    rule: tl.constexpr,
    dim: tl.constexpr,
    lanes: tl.constexpr,
    size: tl.constexpr,
) -> None:
    """Step the row of the run that starts in this program's tile and goes on, if there is one, by its partial sums."""
    tile, columns = tl.program_id(0).to(tl.int64), tl.arange(0, lanes)
    row = tl.load(sorted_rows + (tile + 1) * size)
    came = tl.load(sorted_rows + tile * size - 1, mask=tile > 0, other=-1) == row
    goes = tl.load(sorted_rows + (tile + 1) * size - 1) == row
    if goes & (came == 0) & (row < total):
        summed = tl.load(parts + (2 * tile + 1) * dim + columns, mask=columns < dim, other=0.0)
        tiles = tile + 1 + tl.arange(0, size)
        going = tl.full([size], 1, tl.int1)
        while tl.max(going.to(tl.int32)) > 0:
            first = tl.load(sorted_rows + tiles * size, mask=tiles * size < count, other=-1)
            going = first == row
            mask = going[:, None] & (columns < dim)[None, :]
            summed += tl.sum(tl.load(parts + 2 * tiles[:, None] * dim + columns[None, :], mask=mask, other=0.0), 0)
            tiles += size
        rows, held = tl.full([1], 0, tl.int64) + row, tl.full([1], 1, tl.int1)
        step_rows(rows, held, summed[None, :], weights, states, numbers, names, seed, rule, dim, lanes)
