"""Embedding backward and optimizer step in plain PyTorch: what the fast kernels must equal."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lanner.kernels.layout import MAX, MEAN, NONE
from lanner.kernels.lookup.reference import Occurrences, occurrences
from lanner.kernels.update.rules import Rule, Step


def update(
    weights: Tensor,
    states: tuple[Tensor, ...],
    gradient: Tensor,
    layout: np.ndarray,
    values: Tensor,
    offsets: Tensor | None,
    factors: Tensor | None,
    batch: int,
    winners: Tensor | None,
    step: Step,
) -> None:
    """See `lanner.kernels.update.update`."""
    dim = weights.shape[1]
    rows, gradients = [], []
    for feature in occurrences(layout, values, offsets, factors, batch):
        rows.append(feature.rows)
        won = None if winners is None else feature.vectors(winners, dim)
        gradients.append(_gradients(feature, feature.vectors(gradient, dim), won))
    if not rows:
        return
    distinct, inverse = torch.unique(torch.cat(rows), return_inverse=True)
    summed = torch.zeros(distinct.numel(), dim).index_add_(0, inverse, torch.cat(gradients))
    summed *= step.scale
    before = tuple(state[distinct] for state in states)
    delta, after = _apply(step, summed, before)
    weights[distinct] -= delta
    for state, new in zip(states, after, strict=True):
        state[distinct] = new


def _gradients(feature: Occurrences, gradient: Tensor, winners: Tensor | None) -> Tensor:
    """The gradient [n, dim] of every occurrence of the feature's rows."""
    result = gradient if feature.pooling == NONE else gradient[feature.bags]
    if feature.pooling == MEAN:
        result = result / feature.lengths[feature.bags][:, None]
    if feature.pooling == MAX:
        assert winners is not None
        result = result * (winners[feature.bags] == feature.places[:, None])
    if feature.factors is not None:
        result = result * feature.factors[:, None]
    return result


def _apply(step: Step, g: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """What to take off the rows, and their new states."""
    if step.rule is Rule.SGD:
        return step.rate * g, ()
    if step.rule is Rule.ADAGRAD:
        total = states[0] + g * g
        return step.rate * g / (total.sqrt() + step.eps), (total,)
    if step.rule is Rule.ROWWISE_ADAGRAD:
        total = states[0] + (g * g).mean(1)
        return step.rate * g / (total.sqrt() + step.eps)[:, None], (total,)
    first = step.beta1 * states[0] + (1 - step.beta1) * g
    second = step.beta2 * states[1] + (1 - step.beta2) * g * g
    return step.rate * first / (second.sqrt() * step.correction + step.eps), (first, second)
