"""Embedding lookup: bags of ids to the sum, mean or maximum of the rows they name, or to the rows themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lanner.kernels import backends, parallel
from lanner.kernels.backends import Backend
from lanner.kernels.formats import array_of, scales_for, scales_of
from lanner.kernels.lanes import lanes_for
from lanner.kernels.lookup import cpu, reference

Array = np.ndarray[Any, Any]

_NONE = np.empty(0, np.float32)
_GRAIN = 1 << 20  # bytes of rows worth a thread of its own: about 100 microseconds


def lookup(
    weights: Tensor,
    layout: Array,
    values: Tensor,
    offsets: Tensor | None,
    factors: Tensor | None,
    batch: int,
    out: Tensor,
    winners: Tensor | None = None,
    backend: Backend = "auto",
    scales: Tensor | None = None,
) -> bool | Tensor:
    """Fill `out` with the rows of every feature of `layout` (see `lanner.kernels.layout`), pooled or one by one.

    weights   [rows, dim], the joint table, of a format of `lanner.kernels.formats`
    values    int32 or int64 ids, feature-major; id i of a feature is row FIRST_ROW + i
    offsets   int64 [F*B + 1]: where each bag starts; None: one id a bag
    factors   float32, one for each id, multiplied into its row; None: 1
    batch     B, the bags of each feature
    out       float32, flat; the layout says which vectors lie where; an empty bag gives zeros
    winners   int32, like `out`, where MAX pooling notes the place within the bag that gave the maximum (-1: none)
    scales    float32 [rows, 2], scale and offset of every row, where `weights` are uint8

    All are contiguous. The mean divides by the number of ids, whatever their factors. An id outside its table takes
    row 0 of the table, never another table's; the return value says whether there was one. Bags must fit
    (`bags_fit`).

    Tensors lie on the CPU, or on one CUDA device (`backend` is `gpu` or `auto`); the return value is a tensor there,
    so that nothing waits for the device until somebody looks at it.
    """
    backend = backends.chosen(backend, weights)
    if backend == "gpu":
        with torch.cuda.device_of(weights):  # type: ignore[no-untyped-call]
            outside: Tensor = backends.gpu("lookup").lookup(
                weights, layout, values, offsets, factors, batch, out, winners, scales_for(weights, scales)
            )
        return outside
    if backend == "reference":
        return reference.lookup(weights, layout, values, offsets, factors, batch, out, winners, scales)
    strays, dim = np.zeros(1, np.bool_), weights.shape[1]
    table = lanes_for(dim), array_of(weights), scales_of(weights, scales), dim
    numbers, row = _NONE if factors is None else factors.numpy(), dim * weights.element_size()
    if offsets is None:
        parallel.run(
            cpu.one_hot, batch, *table, layout, values.numpy(), numbers, batch, out.numpy(), strays,
            grain=max(_GRAIN // (row * max(len(layout), 1)), 1),
        )  # fmt: skip
        if winners is not None:
            winners.zero_()
    else:
        bags = len(layout) * batch
        parallel.run(
            cpu.pooled, bags, *table, layout, values.numpy(), offsets.numpy(), numbers, batch, out.numpy(),
            _NONE if winners is None else winners.numpy().view(np.float32), strays,
            grain=max(_GRAIN // (row * (1 + values.numel() // max(bags, 1))), 1),
            pieces_per_thread=len(layout),  # so that all threads read the same table, which then stays in their cache
        )  # fmt: skip
    return bool(strays[0])


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
    if offsets.is_cuda:
        return bool((offsets[0] == 0) & (offsets[-1] == count) & (offsets.diff() >= 0).all())
    return bool(cpu.offsets_fit(offsets.cpu().numpy(), count))
