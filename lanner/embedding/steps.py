"""From an optimizer's settings to the numbers that the kernels need for one step."""

from __future__ import annotations

import math

from lanner.embedding.optimizers import SGD, Adagrad, Adam, Optimizer, RowWiseAdagrad
from lanner.kernels.update import Rule, Step


def step_of(optimizer: Optimizer, count: int, learning_rate_scale: float = 1.0, gradient_scale: float = 1.0) -> Step:
    """Step number `count` (from 1): the rate times `learning_rate_scale`, the gradients times `gradient_scale`."""
    rate = optimizer.lr * learning_rate_scale
    if isinstance(optimizer, Adam):
        beta1, beta2 = optimizer.betas
        correction = 1 / math.sqrt(1 - beta2**count)
        return Step(Rule.ADAM, rate / (1 - beta1**count), optimizer.eps, beta1, beta2, correction, gradient_scale)
    if isinstance(optimizer, SGD):
        return Step(Rule.SGD, rate, scale=gradient_scale)
    rule = {Adagrad: Rule.ADAGRAD, RowWiseAdagrad: Rule.ROWWISE_ADAGRAD}[type(optimizer)]
    return Step(rule, rate, optimizer.eps, scale=gradient_scale)
