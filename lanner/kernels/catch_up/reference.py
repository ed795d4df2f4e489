"""The steps that rows have missed, one after another, in plain PyTorch: what the fast kernels must equal."""

from __future__ import annotations

import torch
from torch import Tensor

from lanner.kernels.catch_up.past import Past
from lanner.kernels.formats.reference import rounded
from lanner.kernels.update.names import Names, words


def catch_up(
    weights: Tensor, first: Tensor, second: Tensor, steps: Tensor, rows: Tensor, past: Past, seed: int, names: Names
) -> None:
    """See `lanner.kernels.catch_up.catch_up`."""
    taken = steps[rows]
    rows = rows[(taken > 0) & (taken < past.last)]
    taken = steps[rows]
    w, m, v = weights[rows].float(), first[rows], second[rows]
    for step in range(past.since + 1, past.last + 1):
        late = (taken < step)[:, None]
        m, v = torch.where(late, past.beta1 * m, m), torch.where(late, past.beta2 * v, v)
        at = step - past.since - 1
        moved = w - past.rates[at] * m / (v.sqrt() * past.corrections[at] + past.eps)
        w = torch.where(late, moved, w)
    weights[rows] = rounded(w, weights.dtype, *words(names, rows.numpy(), seed))
    first[rows], second[rows], steps[rows] = m, v, past.last
