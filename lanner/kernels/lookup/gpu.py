"""Embedding lookup in Triton: a program works on a tile of bags, or of ids where every id has a vector of its own.

All rows of a tile are in flight at once. Bags are summed one row of every bag at a turn, up to the longest bag of
the tile; shorter bags load nothing then.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from lanner.kernels.formats.gpu import load_rows
from lanner.kernels.gpu import (
    MAX,
    MEAN,
    OPTIONS,
    fields_of,
    ids_grid,
    ids_share,
    known_rows,
    lanes_for,
    most_ids,
    on_device,
)
from lanner.kernels.layout import NONE, OUT, POOLING

_POOLED, _COPIED = 1024, 4096  # elements of a tile


def lookup(
    weights: Tensor,
    layout: np.ndarray[Any, Any],
    values: Tensor,
    offsets: Tensor | None,
    factors: Tensor | None,
    batch: int,
    out: Tensor,
    winners: Tensor | None,
    scales: Tensor | None = None,
) -> Tensor:
    """See `lanner.kernels.lookup.lookup`; whether an id was out of range is bool [1] on the device: nothing waits."""
    strays = torch.zeros(1, dtype=torch.int32, device=weights.device)
    bags = weights, scales, values, offsets, factors, out, winners, strays
    single = layout[:, POOLING] == NONE if offsets is not None else np.ones(len(layout), np.bool_)
    dim, lanes = weights.shape[1], lanes_for(weights.shape[1])
    aligned = not (dim % 4 or (layout[:, OUT:] % 4).any())
    if values.numel() and single.any():
        lines, size = layout[single], max(_COPIED // lanes, 1)
        ids = most_ids(lines, values, offsets, batch)
        _copied[ids_grid(ids, len(lines), offsets, batch, size)](
            *bags, on_device(lines, weights.device), len(lines), batch, dim, lanes, size, lanes_for(len(lines)),
            aligned, **OPTIONS,
        )  # fmt: skip
    if batch and not single.all():
        lines, size = layout[~single], max(_POOLED // lanes, 1)
        _pooled[triton.cdiv(batch, size), len(lines)](
            *bags, on_device(lines, weights.device), batch, dim, lanes, size, aligned, **OPTIONS
        )
    return strays != 0


@triton.jit(do_not_specialize=["lines", "batch"])
def _copied(
    weights: tl.tensor,
    scales: tl.tensor,
    values: tl.tensor,
    offsets: tl.tensor,
    factors: tl.tensor,
    out: tl.tensor,
    winners: tl.tensor,
    strays: tl.tensor,
    layout: tl.tensor,
    lines: tl.int64,
    batch: tl.int64,
    dim: tl.constexpr,
    lanes: tl.constexpr,
    size: tl.constexpr,
    room: tl.constexpr,
    aligned: tl.constexpr,
) -> None:
    """The row of every id to the place of the id among those of its line; where one won, it was place 0 of its bag."""
    line, begin, place, end, _ = ids_share(layout, offsets, lines, batch, room, size)
    _, first_row, rows, _, start, stride = fields_of(layout, line)
    places = place + tl.arange(0, size)
    vectors, outside = _rows(weights, scales, values, factors, places, places < end, first_row, rows, dim, lanes)
    targets, mask = _targets(start, stride, places - begin, places < end, dim, lanes, aligned)
    tl.store(out + targets, vectors, mask=mask)
    if winners is not None:
        tl.store(winners + targets, tl.zeros([size, lanes], tl.int32), mask=mask)
    _report(strays, outside)


@triton.jit(do_not_specialize=["batch"])
def _pooled(
    weights: tl.tensor,
    scales: tl.tensor,
    values: tl.tensor,
    offsets: tl.tensor,
    factors: tl.tensor,
    out: tl.tensor,
    winners: tl.tensor,
    strays: tl.tensor,
    layout: tl.tensor,
    batch: tl.int64,
    dim: tl.constexpr,
    lanes: tl.constexpr,
    size: tl.constexpr,
    aligned: tl.constexpr,
) -> None:
    """Sums, means or maxima of `size` bags of one line."""
    feature, first_row, rows, pooling, start, stride = fields_of(layout, tl.program_id(1))
    samples = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    inside = samples < batch
    begins = tl.load(offsets + feature * batch + samples, mask=inside, other=0)
    lengths = tl.load(offsets + feature * batch + samples + 1, mask=inside, other=0) - begins
    targets, mask = _targets(start, stride, samples, inside, dim, lanes, aligned)
    pooled, strayed = tl.zeros([size, lanes], tl.float32), tl.zeros([size], tl.int1)
    if pooling == MAX:
        won = tl.full([size, lanes], -1, tl.int32)
        for turn in range(tl.max(lengths)):
            held = turn < lengths
            vectors, outside = _rows(weights, scales, values, factors, begins + turn, held, first_row, rows, dim, lanes)
            better = held[:, None] & ((turn == 0) | (vectors > pooled))
            pooled, won = tl.where(better, vectors, pooled), tl.where(better, turn, won).to(tl.int32)
            strayed |= outside
        if winners is not None:
            tl.store(winners + targets, won, mask=mask)
    else:
        for turn in range(tl.max(lengths)):
            held = turn < lengths
            vectors, outside = _rows(weights, scales, values, factors, begins + turn, held, first_row, rows, dim, lanes)
            pooled += vectors
            strayed |= outside
        if pooling == MEAN:
            pooled *= (1.0 / tl.maximum(lengths, 1).to(tl.float32))[:, None]
    tl.store(out + targets, pooled, mask=mask)
    _report(strays, strayed)


@triton.jit
def _rows(
    weights: tl.tensor,
    scales: tl.tensor,
    values: tl.tensor,
    factors: tl.tensor,
    places: tl.tensor,
    held: tl.tensor,
    first_row: tl.tensor,
    rows: tl.tensor,
    dim: tl.constexpr,
    lanes: tl.constexpr,
) -> tl.tensor:
    """The rows of the ids at `places`, 0 where not held, times their factors; and which ids are out of range."""
    chosen, outside = known_rows(values, places, held, first_row, rows)
    vectors = load_rows(weights, scales, chosen, held, dim, lanes)
    if factors is not None:
        vectors *= tl.load(factors + places, mask=held, other=0.0)[:, None]
    return vectors, outside


@triton.jit
def _targets(
    start: tl.tensor,
    stride: tl.tensor,
    numbers: tl.tensor,
    held: tl.tensor,
    dim: tl.constexpr,
    lanes: tl.constexpr,
    aligned: tl.constexpr,
) -> tl.tensor:
    """Elements of the output where the vectors with these numbers of a line lie, and the mask of those held."""
    starts, columns = start + numbers * stride, tl.arange(0, lanes)
    if aligned:
        starts = tl.multiple_of(starts, 4)
    return starts[:, None] + columns[None, :], held[:, None] & (columns < dim)[None, :]


@triton.jit
def _report(strays: tl.tensor, outside: tl.tensor) -> None:
    if tl.max(outside.to(tl.int32)) > 0:
        tl.store(strays, 1)
