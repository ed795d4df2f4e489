"""Distinct ids on a CUDA device: sorted by value, then numbered by first appearance."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Distinct(NamedTuple):
    """The distinct ids of n ids, in order of first appearance, owner after owner."""

    ids: Tensor  # int64 [m]
    firsts: Tensor  # int64 [m]: where each appeared first
    inverse: Tensor  # int64 [n]: the place of each of the n ids among the m


def unique(
    values: Tensor, bounds: np.ndarray[Any, Any], segments: np.ndarray[Any, Any]
) -> tuple[Tensor, Tensor, Tensor]:
    """See `lanner.kernels.unique.unique`."""
    size = int(segments.max(initial=-1)) + 1
    owners = torch.from_numpy(np.repeat(segments, np.diff(bounds))).to(values.device)
    found = distinct_of(values, owners if size > 1 else None)
    counts = torch.bincount(owners[found.firsts], minlength=size)
    return found.ids, found.inverse - (counts.cumsum(0) - counts)[owners], counts


def distinct_of(values: Tensor, owners: Tensor | None = None) -> Distinct:
    """The distinct ids; equal ids with different `owners` (from 0 on, by default all are 0) are different."""
    order = torch.argsort(values, stable=True)
    if owners is not None:
        order = order[torch.argsort(owners[order], stable=True)]
    heads = torch.ones(len(values), dtype=torch.bool, device=values.device)
    heads[1:] = values[order].diff() != 0
    if owners is not None:
        heads[1:] |= owners[order].diff() != 0
    firsts = order[heads]
    ranks = firsts if owners is None else owners[firsts] * len(values) + firsts
    by_appearance = torch.argsort(ranks)
    places, inverse = torch.empty_like(firsts), torch.empty_like(order)
    places[by_appearance] = torch.arange(len(firsts), device=values.device)
    inverse[order] = places[heads.cumsum(0) - 1]
    firsts = firsts[by_appearance]
    return Distinct(values[firsts].long(), firsts, inverse)
