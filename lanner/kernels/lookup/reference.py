"""Embedding lookup in plain PyTorch: what the fast kernels must equal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lanner.kernels.formats.reference import widened
from lanner.kernels.layout import FEATURE, FIRST_ROW, MAX, MEAN, NONE, OUT, POOLING, ROWS, STRIDE


class Occurrences(NamedTuple):
    """The n ids of one feature of a batch, in order."""

    rows: Tensor  # int64 [n]: rows of the joint table (row 0 of the feature's table for ids out of range)
    bags: Tensor  # int64 [n]: the sample of each id
    places: Tensor  # int64 [n]: position of each id within its bag
    factors: Tensor | None  # float32 [n]
    lengths: Tensor  # int64 [B]: ids in each bag
    pooling: int
    out: int  # where the feature's vectors lie: OUT and STRIDE of its line
    stride: int
    strays: bool  # whether an id was out of range

    def vectors(self, flat: Tensor, dim: int) -> Tensor:
        """The feature's part of a flat output or gradient, as a view [B or n, dim]."""
        count = self.rows.numel() if self.pooling == NONE else self.lengths.numel()
        return flat.as_strided((count, dim), (self.stride, 1), flat.storage_offset() + self.out)


def occurrences(
    layout: np.ndarray, values: Tensor, offsets: Tensor | None, factors: Tensor | None, batch: int
) -> Iterator[Occurrences]:
    """The ids of every feature of `layout` with where they belong."""
    samples = torch.arange(batch)
    for line in layout.tolist():
        bag = line[FEATURE] * batch
        ends = slice(bag, bag + batch + 1)
        bounds = torch.arange(ends.start, ends.stop) if offsets is None else offsets[ends].long()
        begin, end = int(bounds[0]), int(bounds[-1])
        lengths = bounds.diff()
        bags = torch.repeat_interleave(samples, lengths)
        ids = values[begin:end].long()
        known = (ids >= 0) & (ids < line[ROWS])
        ids = torch.where(known, ids, 0)
        yield Occurrences(
            rows=ids + line[FIRST_ROW],
            bags=bags,
            places=torch.arange(begin, end) - bounds[bags],
            factors=None if factors is None else factors[begin:end],
            lengths=lengths,
            pooling=line[POOLING],
            out=line[OUT],
            stride=line[STRIDE],
            strays=not bool(known.all()),
        )


def lookup(
    weights: Tensor,
    layout: np.ndarray,
    values: Tensor,
    offsets: Tensor | None,
    factors: Tensor | None,
    batch: int,
    out: Tensor,
    winners: Tensor | None,
    scales: Tensor | None,
) -> bool:
    """See `lanner.kernels.lookup.lookup`."""
    dim, strays = weights.shape[1], False
    for feature in occurrences(layout, values, offsets, factors, batch):
        place = feature.vectors(out, dim)
        rows, strays = widened(weights, scales, feature.rows), strays or feature.strays
        if feature.factors is not None:
            rows = rows * feature.factors[:, None]
        if feature.pooling == NONE:
            place.copy_(rows)
        elif feature.pooling == MAX:
            best, first = _maximum(rows, feature)
            place.copy_(best)
            if winners is not None:
                feature.vectors(winners, dim).copy_(first)
        else:
            pooled = torch.zeros(batch, dim).index_add_(0, feature.bags, rows)
            place.copy_(pooled / feature.lengths.clamp(min=1)[:, None] if feature.pooling == MEAN else pooled)
    return strays


def _maximum(rows: Tensor, feature: Occurrences) -> tuple[Tensor, Tensor]:
    """The largest value of each bag and column (0 in empty bags), and the place within the bag where it first is."""
    bags = feature.bags[:, None].expand_as(rows)
    shape = (feature.lengths.numel(), rows.shape[1])
    best = torch.full(shape, -torch.inf).scatter_reduce_(0, bags, rows, "amax")
    places = torch.where(rows == best[feature.bags], feature.places[:, None], torch.iinfo(torch.int64).max)
    first = torch.full(shape, torch.iinfo(torch.int64).max).scatter_reduce_(0, bags, places, "amin")
    empty = (feature.lengths == 0)[:, None]
    return best.masked_fill(empty, 0.0), first.masked_fill(empty, -1).int()
