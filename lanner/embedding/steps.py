"""From an optimizer's settings to the numbers that the kernels need for one step."""

from __future__ import annotations

import math
from typing import Any

from lanner.embedding.optimizers import FTRL, SGD, Adagrad, Adam, AdamW, Optimizer, RMSProp, RowWiseAdagrad
from lanner.kernels.update import Rule, Step


def step_of(optimizer: Optimizer, count: int, learning_rate_scale: float = 1.0, gradient_scale: float = 1.0) -> Step:
    """Step number `count` (from 1): the rate times `learning_rate_scale`, the gradients times `gradient_scale`."""
    rate = optimizer.lr * learning_rate_scale
    decoupled = isinstance(optimizer, AdamW)
    common: dict[str, Any] = {
        "scale": gradient_scale,
        "clip": math.inf if optimizer.clip_norm is None else optimizer.clip_norm,
        "decay": 0.0 if decoupled else optimizer.weight_decay,
    }
    match optimizer:
        case SGD():
            rule = Rule.NESTEROV if optimizer.nesterov else Rule.MOMENTUM if optimizer.momentum else Rule.SGD
            return Step(rule, rate, beta1=optimizer.momentum, **common)
        case Adagrad():
            return Step(Rule.ADAGRAD, rate, optimizer.eps, **common)
        case RowWiseAdagrad():
            return Step(Rule.ROWWISE_ADAGRAD, rate, optimizer.eps, **common)
        case RMSProp():
            return Step(Rule.RMSPROP, rate, optimizer.eps, beta2=optimizer.alpha, **common)
        case Adam() | AdamW():
            (beta1, beta2), keep = optimizer.betas, 1 - rate * optimizer.weight_decay if decoupled else 1.0
            correction = 1 / math.sqrt(1 - beta2**count)
            return Step(
                Rule.ADAM, rate / (1 - beta1**count), optimizer.eps, beta1, beta2, correction, keep=keep, **common
            )
        case FTRL():
            penalties = {"l1": optimizer.lr * optimizer.l1, "l2": optimizer.lr * optimizer.l2}
            return Step(Rule.FTRL, rate, optimizer.beta, **penalties, **common)
    raise TypeError(f"no kernel knows the optimizer {optimizer!r}")
