"""What one optimizer step does to a row, as numbers a kernel can take."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Rule(IntEnum):
    """The optimizers the kernels know; their formulas stand in `lanner.embedding.optimizers`."""

    SGD = 0
    ADAGRAD = 1
    ROWWISE_ADAGRAD = 2
    ADAM = 3


STATES = {Rule.SGD: 0, Rule.ADAGRAD: 1, Rule.ROWWISE_ADAGRAD: 1, Rule.ADAM: 2}
"""Number of state arrays: [rows, dim] each, but [rows] for ROWWISE_ADAGRAD."""


class Step(NamedTuple):
    """One optimizer step.

    `rate` is the learning rate with everything multiplied in (Adam: divided by 1 - beta1^t), `scale` multiplies the
    summed gradients first, and Adam's `correction` is 1 / sqrt(1 - beta2^t).
    """

    rule: Rule
    rate: float
    eps: float = 0.0
    beta1: float = 0.0
    beta2: float = 0.0
    correction: float = 1.0
    scale: float = 1.0
