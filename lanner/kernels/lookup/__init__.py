"""Pooled embedding lookup: bags of ids to the sum, mean or maximum of the rows they name."""

from __future__ import annotations

from typing import Literal

import numpy as np
from torch import Tensor

from lanner.kernels.lookup import reference

Backend = Literal["reference", "cpu"]


def lookup(
    weights: Tensor,
    layout: np.ndarray,
    values: Tensor,
    offsets: Tensor | None,
    factors: Tensor | None,
    out: Tensor,
    winners: Tensor | None = None,
    backend: Backend = "cpu",
) -> bool:
    """Fill `out` with the pooled rows of every feature of `layout` (see `lanner.kernels.layout`).

    weights   float32 [rows, dim], the joint table
    values    int32 or int64 ids, feature-major; id i of a feature is row FIRST_ROW + i
    offsets   int64 [F*B + 1]: where each bag starts; None: one id a bag
    factors   float32, one for each id, multiplied into its row; None: 1
    out       float32 [B, width]; the feature fills columns COLUMN .. COLUMN + dim, an empty bag gives zeros
    winners   int32 [B, width], where MAX pooling notes the place within the bag that gave the maximum (-1: none)

    The mean divides by the number of ids, whatever their factors. An id outside its table takes row 0 of the table,
    never another table's; the return value says whether there was one. Bags must fit (`bags_fit`).
    """
    return reference.lookup(weights, layout, values, offsets, factors, out, winners)


def bags_fit(values: Tensor, offsets: Tensor | None, factors: Tensor | None, features: int) -> bool:
    """Whether ids, offsets and factors make bags of `features` features: one cheap pass over the offsets."""
    count = values.numel()
    if factors is not None and factors.numel() != count:
        return False
    if offsets is None:
        return count % features == 0 if features else count == 0
    bags = offsets.numel() - 1
    if bags < 0 or (bags % features if features else bags):
        return False
    return bool(offsets[0] == 0 and offsets[-1] == count and (offsets.diff() >= 0).all())
