"""Steps without a gradient that Adam takes on rows, made up for many at once.

In a step that a row does not occur in, dense Adam fades its moments and moves it on by what is left of the first:

    m = beta1 * m;  v = beta2 * v;  w -= rate_t * m / (sqrt(v) * correction_t + eps)

Many such steps need one reading and writing of the row, since m and v are known beforehand. After some hundred steps
m is too small to change w, so rows that were away for longer cost no more time.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lanner.kernels import backends, parallel
from lanner.kernels.backends import Backend
from lanner.kernels.catch_up import cpu, reference
from lanner.kernels.catch_up.past import Past
from lanner.kernels.formats import array_of
from lanner.kernels.lanes import lanes_for
from lanner.kernels.update.names import UNNAMED, Names, words

__all__ = ["Past", "catch_up"]

_GRAIN = 1 << 8  # rows worth a thread of their own


def catch_up(
    weights: Tensor,
    first: Tensor,
    second: Tensor,
    steps: Tensor,
    rows: Tensor,
    past: Past,
    seed: int = 0,
    names: Names = UNNAMED,
    backend: Backend = "auto",
) -> None:
    """Take, on `rows`, int64 [n] and distinct, the steps that they have missed since their own last one, in place.

    `weights` [rows, dim] are float32, float16 or bfloat16 (for `seed` and `names` see `lanner.kernels.update.update`;
    the seed of the last step is free, as that step was not taken on these rows), the moments `first` and `second`
    float32 [rows, dim], `steps` int32 [rows]: the number of the last step taken on the row, 0 for none, which moves
    nothing. It must not be below `past.since` otherwise. All arrays are contiguous.
    """
    backend = backends.chosen(backend, weights)
    if not len(rows):
        return
    if backend == "gpu":
        backends.gpu("catch_up").catch_up(weights, first, second, steps, rows, past, seed, names)
        return
    if backend == "reference":
        reference.catch_up(weights, first, second, steps, rows, past, seed, names)
        return
    dim, rounds = weights.shape[1], weights.dtype is not torch.float32
    chances = words(names, rows.numpy(), seed) if rounds else (np.zeros(1, np.uint64), np.zeros(1, np.int64))
    parallel.run(
        cpu.catch_up, len(rows), lanes_for(dim), array_of(weights), dim, array_of(first), array_of(second),
        steps.numpy(), rows.numpy(), past.since, past.rates.numpy(), past.corrections.numpy(), past.beta1, past.beta2,
        past.eps, past.longest, rounds, *chances, grain=_GRAIN,
    )  # fmt: skip
