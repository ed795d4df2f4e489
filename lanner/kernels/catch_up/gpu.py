"""The steps that rows have missed, in Triton; a tile of rows takes them together, as many as the latest of them."""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from lanner.kernels.catch_up.past import Past
from lanner.kernels.formats.gpu import load_rows, store_rows
from lanner.kernels.gpu import OPTIONS, lanes_for
from lanner.kernels.update.gpu_names import chances_of, names_on
from lanner.kernels.update.names import Names

_TILE = 1024  # elements of a tile
_LOWEST = -1000.0  # in place of the logarithm of 0


def catch_up(
    weights: Tensor, first: Tensor, second: Tensor, steps: Tensor, rows: Tensor, past: Past, seed: int, names: Names
) -> None:
    """See `lanner.kernels.catch_up.catch_up`."""
    dim, lanes = weights.shape[1], lanes_for(weights.shape[1])
    size = max(_TILE // lanes, 1)
    logarithms = (math.log2(beta) if beta else _LOWEST for beta in (past.beta1, past.beta2))
    numbers = past.beta1, math.sqrt(past.beta2), *logarithms, past.eps
    _catch_up[(triton.cdiv(len(rows), size),)](
        weights, first, second, steps, rows, len(rows), past.since, past.last, past.longest, past.rates,
        past.corrections, numbers, names_on(names, weights), seed, dim, lanes, size, **OPTIONS,
    )  # fmt: skip


@triton.jit(do_not_specialize=["total", "since", "count", "longest", "seed"])
def _catch_up(
    weights: tl.tensor,
    firsts: tl.tensor,
    seconds: tl.tensor,
    steps: tl.tensor,
    rows: tl.tensor,
    total: tl.int64,
    since: tl.int64,
    count: tl.int64,
    longest: tl.int64,
    rates: tl.tensor,
    corrections: tl.tensor,
    numbers: tl.tensor,
    names: tl.tensor,
    seed: tl.uint64,
    dim: tl.constexpr,
    lanes: tl.constexpr,
    size: tl.constexpr,
) -> None:
    """`numbers`: beta1, sqrt(beta2), log2 of beta1 and of beta2, eps."""
    fading, root_fading, log1, log2, eps = numbers
    places = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    named = places < total
    row = tl.load(rows + places, mask=named, other=0)
    taken = tl.load(steps + row, mask=named, other=0).to(tl.int64)
    held = named & (taken > 0) & (taken < count)
    gap = tl.where(held, count - taken, 0)
    missed = tl.minimum(gap, longest)
    m = load_rows(firsts, None, row, held, dim, lanes)
    v = load_rows(seconds, None, row, held, dim, lanes)
    store_rows(firsts, row, held, m * tl.exp2(gap.to(tl.float32) * log1)[:, None], None, dim, lanes)
    store_rows(seconds, row, held, v * tl.exp2(gap.to(tl.float32) * log2)[:, None], None, dim, lanes)
    weight, root = load_rows(weights, None, row, held, dim, lanes), tl.sqrt_rn(v)
    k = tl.max(missed) * 0
    while k < tl.max(missed):
        late = held & (k < missed)
        rate = tl.load(rates + taken - since + k, mask=late, other=0.0)
        correction = tl.load(corrections + taken - since + k, mask=late, other=1.0)
        m *= fading
        root *= root_fading
        moved = m * rate[:, None] / (root * correction[:, None] + eps)
        weight -= tl.where(late[:, None], moved, 0.0)
        k += 1
    chances = None if names is None else chances_of(names, row, held, seed)
    store_rows(weights, row, held, weight, chances, dim, lanes)
    tl.store(steps + row, tl.zeros([size], tl.int32) + count.to(tl.int32), mask=held)
