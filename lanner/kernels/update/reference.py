"""Embedding backward and optimizer step in plain PyTorch: what the fast kernels must equal."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from lanner.kernels.formats.reference import rounded
from lanner.kernels.layout import MAX, MEAN, NONE
from lanner.kernels.lookup.reference import Occurrences, occurrences
from lanner.kernels.update.names import Names, words
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
    seed: int,
    names: Names,
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
    row, before = weights[distinct].float(), tuple(state[distinct] for state in states)
    after, *new_states = _apply(step, row, _prepared(step, row, summed), before)
    weights[distinct] = rounded(after, weights.dtype, *words(names, distinct.numpy(), seed))
    for state, new in zip(states, new_states, strict=True):
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


def _prepared(step: Step, weights: Tensor, gradients: Tensor) -> Tensor:
    """Summed gradients scaled, clipped and decayed."""
    g = gradients * step.scale
    if step.clip < math.inf:
        g = g * (step.clip / g.norm(dim=1, keepdim=True)).clamp(max=1.0)
    return g + step.decay * weights


def _apply(step: Step, w: Tensor, g: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The rows after the step, and their new states."""
    if step.rule is Rule.SGD:
        return (w - step.rate * g,)
    if step.rule in (Rule.MOMENTUM, Rule.NESTEROV):
        velocity = step.beta1 * states[0] + g
        direction = g + step.beta1 * velocity if step.rule is Rule.NESTEROV else velocity
        return w - step.rate * direction, velocity
    if step.rule is Rule.ADAGRAD:
        total = states[0] + g * g
        return w - step.rate * g / (total.sqrt() + step.eps), total
    if step.rule is Rule.ROWWISE_ADAGRAD:
        total = states[0] + (g * g).mean(1)
        return w - step.rate * g / (total.sqrt() + step.eps)[:, None], total
    if step.rule is Rule.RMSPROP:
        mean = step.beta2 * states[0] + (1 - step.beta2) * g * g
        return w - step.rate * g / (mean.sqrt() + step.eps), mean
    if step.rule is Rule.ADAM:
        first = step.beta1 * states[0] + (1 - step.beta1) * g
        second = step.beta2 * states[1] + (1 - step.beta2) * g * g
        return step.keep * w - step.rate * first / (second.sqrt() * step.correction + step.eps), first, second
    return _ftrl(step, w, g, *states)


def _ftrl(step: Step, w: Tensor, g: Tensor, squares: Tensor, linear: Tensor) -> tuple[Tensor, ...]:
    """A weight whose gradients were all 0 stays what it is."""
    after = squares + g * g
    linear = linear + step.rate * g - (after.sqrt() - squares.sqrt()) * w
    shrunk = linear - linear.clamp(-step.l1, step.l1)
    return torch.where(after == 0, w, -shrunk / (after.sqrt() + step.eps + step.l2)), after, linear
