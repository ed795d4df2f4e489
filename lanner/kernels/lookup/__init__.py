"""Pooled embedding lookup: bags of ids to the sum, mean or maximum of the rows they name."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from torch import Tensor

from lanner.kernels import parallel
from lanner.kernels.lookup import cpu, reference
from lanner.kernels.simd import lanes_for

Array = np.ndarray[Any, Any]
Backend = Literal["reference", "cpu"]

_NO_FACTORS, _NO_WINNERS = np.empty(0, np.float32), np.empty(0, np.int32)
_GRAIN = 1 << 20  # bytes of rows worth a thread of its own: about 100 microseconds


def lookup(
    weights: Tensor,
    layout: Array,
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

    All are contiguous. The mean divides by the number of ids, whatever their factors. An id outside its table takes
    row 0 of the table, never another table's; the return value says whether there was one. Bags must fit
    (`bags_fit`).
    """
    if backend == "reference":
        return reference.lookup(weights, layout, values, offsets, factors, out, winners)
    strays = np.zeros(1, np.bool_)
    if offsets is None:
        _one_hot(weights, layout, values, factors, out, strays)
        if winners is not None:
            winners.zero_()
    else:
        _pooled(weights, layout, values, offsets, factors, out, winners, strays)
    return bool(strays[0])


def _one_hot(
    weights: Tensor, layout: Array, values: Tensor, factors: Tensor | None, out: Tensor, strays: Array
) -> None:
    (batch, out_width), dim = out.shape, weights.shape[1]
    parallel.run(
        cpu.one_hot, batch, lanes_for(dim), _flat(weights), dim, layout, values.numpy(),
        _NO_FACTORS if factors is None else factors.numpy(), batch, _flat(out), out_width, strays,
        grain=max(_GRAIN // (4 * dim * len(layout)), 1),
    )  # fmt: skip


def _pooled(
    weights: Tensor,
    layout: Array,
    values: Tensor,
    offsets: Tensor,
    factors: Tensor | None,
    out: Tensor,
    winners: Tensor | None,
    strays: Array,
) -> None:
    (batch, out_width), dim, bags = out.shape, weights.shape[1], len(layout) * out.shape[0]
    parallel.run(
        cpu.pooled, bags, lanes_for(dim), _flat(weights), dim, layout, values.numpy(), offsets.numpy(),
        _NO_FACTORS if factors is None else factors.numpy(), batch, _flat(out), out_width,
        _NO_WINNERS if winners is None else _flat(winners), strays,
        grain=max(_GRAIN // (4 * dim * (1 + values.numel() // max(bags, 1))), 1),
        pieces_per_thread=len(layout),  # so that all threads read the same table, which then stays in their cache
    )  # fmt: skip


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
    return bool(cpu.offsets_fit(offsets.numpy(), count))


def _flat(tensor: Tensor) -> Array:
    return tensor.numpy().reshape(-1)
