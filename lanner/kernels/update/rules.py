"""What one optimizer step does to a row, as numbers a kernel can take."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple


class Rule(IntEnum):
    """The optimizers the kernels know; `reference.py` has their formulas in the plainest form."""

    SGD = 0
    ADAGRAD = 1
    ROWWISE_ADAGRAD = 2
    ADAM = 3
    MOMENTUM = 4
    NESTEROV = 5
    RMSPROP = 6
    FTRL = 7


STATES = {
    Rule.SGD: 0,
    Rule.ADAGRAD: 1,
    Rule.ROWWISE_ADAGRAD: 1,
    Rule.ADAM: 2,
    Rule.MOMENTUM: 1,
    Rule.NESTEROV: 1,
    Rule.RMSPROP: 1,
    Rule.FTRL: 2,
}
"""Number of state arrays, float32: [rows, dim] each, but [rows] for ROWWISE_ADAGRAD. FTRL: squares, then linear."""


class Step(NamedTuple):
    """One optimizer step.

    To the summed gradient of a row happens, in this order: `scale` multiplies it, its L2 norm is cut to `clip`, and
    `decay` times the row is added. Then comes the rule, with `rate`, the learning rate with everything multiplied in.

    - ADAM: `rate` is divided by 1 - beta1^t, `correction` is 1 / sqrt(1 - beta2^t), and `keep` multiplies the row
      before the step is taken off (decoupled decay).
    - MOMENTUM and NESTEROV have their momentum in `beta1`, RMSPROP has its alpha in `beta2`.
    - FTRL (McMahan et al., "Ad Click Prediction: a View from the Trenches", 2013) has its beta in `eps`. Its `linear`
      state is the paper's z times the learning rate, and `l1` and `l2` are the paper's times the learning rate, without
      a schedule's factor, which belongs into `rate` alone. So a schedule scales what a gradient does, as it does in
      Adagrad, which this is without beta, l1 and l2; in the paper's form it would scale the row, down to zero.
    """

    rule: Rule
    rate: float
    eps: float = 0.0
    beta1: float = 0.0
    beta2: float = 0.0
    correction: float = 1.0
    scale: float = 1.0
    decay: float = 0.0
    keep: float = 1.0
    clip: float = math.inf
    l1: float = 0.0
    l2: float = 0.0


RATE, EPS, BETA1, GAIN1, BETA2, GAIN2, CORRECTION, SCALE, DECAY, KEEP, CLIP, L1, L2 = range(13)
"""Places in `numbers_of` a step."""


def numbers_of(step: Step) -> tuple[float, ...]:
    """A step's numbers as kernels take them; the gains 1 - beta are made here, in float64."""
    return (
        step.rate, step.eps, step.beta1, 1 - step.beta1, step.beta2, 1 - step.beta2, step.correction, step.scale,
        step.decay, step.keep, step.clip, step.l1, step.l2,
    )  # fmt: skip
