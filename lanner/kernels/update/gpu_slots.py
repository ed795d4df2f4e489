"""A slot for each id of a batch, sorted by row: which row, and what its gradient is made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from lanner.kernels import layout as columns
from lanner.kernels.gpu import (
    MAX,
    MEAN,
    NONE,
    OPTIONS,
    fields_of,
    ids_grid,
    ids_share,
    known_rows,
    lanes_for,
    most_ids,
    on_device,
)

_SIZE = 256  # ids a program


class Slots(NamedTuple):
    """n slots; the last ones may be unused."""

    rows: Tensor  # int32 or int64 [n], rising: rows of the joint table; their number where unused
    order: Tensor  # int64 [n]: which slot of the arrays below, in the order of the ids, belongs to the row
    sources: Tensor  # int64 [n]: where the gradient of the id's vector starts
    scales: Tensor | None  # float32 [n]: what it is multiplied with
    places: Tensor | None  # int32 [n]: the id's place in its bag, which won or did not; -1 where pooling is not MAX


def slots_of(
    layout: np.ndarray[Any, Any],
    values: Tensor,
    offsets: Tensor | None,
    factors: Tensor | None,
    batch: int,
    total: int,
    max_pooled: bool,
) -> Slots:
    """The slots of a batch, for a joint table of `total` rows; equal rows stay in the order of their ids."""
    count, lines, device = most_ids(layout, values, offsets, batch), len(layout), values.device

    def new(kind: torch.dtype) -> Tensor:
        return torch.empty(count, dtype=kind, device=device)

    scaled = factors is not None or bool((layout[:, columns.POOLING] == columns.MEAN).any())
    keys = new(torch.int32 if total < 2**31 - 1 else torch.int64).fill_(total)
    sources = new(torch.int64)
    scales, places = new(torch.float32) if scaled else None, new(torch.int32) if max_pooled else None
    _fill[ids_grid(count, lines, offsets, batch, _SIZE)](
        values, offsets, factors, on_device(layout, device), keys, sources, scales, places, lines, batch,
        batch.bit_length(), lanes_for(lines), _SIZE, **OPTIONS,
    )  # fmt: skip
    rows, order = torch.sort(keys, stable=True)
    return Slots(rows, order, sources, scales, places)


@triton.jit(do_not_specialize=["lines", "batch", "halvings"])
def _fill(
    values: tl.tensor,
    offsets: tl.tensor,
    factors: tl.tensor,
    layout: tl.tensor,
    keys: tl.tensor,
    sources: tl.tensor,
    scales: tl.tensor,
    places: tl.tensor,
    lines: tl.int64,
    batch: tl.int64,
    halvings: tl.int64,
    room: tl.constexpr,
    size: tl.constexpr,
) -> None:
    """Fill slots before they are sorted; with `halvings` an id's bag is found among `batch`."""
    line, begin, place, end, before = ids_share(layout, offsets, lines, batch, room, size)
    feature, first_row, rows, pooling, start, stride = fields_of(layout, line)
    at = place + tl.arange(0, size)
    held = at < end
    slots = before + at - begin
    tl.store(keys + slots, known_rows(values, at, held, first_row, rows)[0], mask=held)
    scale, in_bag = tl.full([size], 1.0, tl.float32), tl.where(pooling == MAX, tl.zeros([size], tl.int64), -1)
    number = at - begin
    if offsets is not None:
        bag = _bag(offsets + feature * batch, at, held, batch, tl.where(pooling == NONE, 0, halvings))
        first = tl.load(offsets + feature * batch + bag, mask=held, other=0)
        after = tl.load(offsets + feature * batch + bag + 1, mask=held, other=1)
        number = tl.where(pooling == NONE, number, bag)
        scale = tl.where(pooling == MEAN, 1.0 / tl.maximum(after - first, 1).to(tl.float32), scale)
        in_bag = tl.where(pooling == MAX, at - first, in_bag)
    tl.store(sources + slots, start + number * stride, mask=held)
    if scales is not None:
        if factors is not None:
            scale *= tl.load(factors + at, mask=held, other=0.0)
        tl.store(scales + slots, scale, mask=held)
    if places is not None:
        tl.store(places + slots, in_bag, mask=held)


@triton.jit
def _bag(bounds: tl.tensor, at: tl.tensor, held: tl.tensor, batch: tl.tensor, halvings: tl.tensor) -> tl.tensor:
    """The last bag that starts at or before each id, by bisection."""
    low = tl.zeros_like(at)
    high = low + batch
    for _ in range(halvings):
        middle = (low + high) // 2
        starts = tl.load(bounds + middle, mask=held, other=0) <= at
        low, high = tl.where(starts, middle, low), tl.where(starts, high, middle)
    return low
