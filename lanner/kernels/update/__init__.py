"""Embedding backward and optimizer step in one pass over the batch."""

from __future__ import annotations

from typing import Literal

import numpy as np
from torch import Tensor

from lanner.kernels.update import reference
from lanner.kernels.update.rules import STATES, Rule, Step

__all__ = ["STATES", "Rule", "Step", "update"]

Backend = Literal["reference", "cpu"]


def update(
    weights: Tensor,
    states: tuple[Tensor, ...],
    gradient: Tensor,
    layout: np.ndarray,
    values: Tensor,
    offsets: Tensor | None,
    factors: Tensor | None,
    winners: Tensor | None,
    step: Step,
    backend: Backend = "cpu",
) -> None:
    """Take one optimizer step on every row that occurs in the bags, in place.

    `gradient` [B, width] is the gradient of what `lookup` wrote with the same layout, bags and `winners`. The
    gradients of equal ids (of all features that share the table) are summed first; each distinct row then takes one
    step. The sums run in the order of the ids, so the result is the same for any number of threads, and differs by
    rounding only when the batch is permuted. `states` are those of `step.rule` (see `STATES`).
    """
    reference.update(weights, states, gradient, layout, values, offsets, factors, winners, step)
