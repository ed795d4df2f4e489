"""Steps of every rule, states to start them from, and their formulas in float64."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import strategies as st

from lanner.kernels.update import STATES, Rule, Step

STEPS = {
    Rule.SGD: Step(Rule.SGD, 0.1),
    Rule.ADAGRAD: Step(Rule.ADAGRAD, 0.1, 1e-8),
    Rule.ROWWISE_ADAGRAD: Step(Rule.ROWWISE_ADAGRAD, 0.1, 1e-8),
    Rule.ADAM: Step(Rule.ADAM, 0.1, 1e-8, 0.9, 0.999, 3.0),
    Rule.MOMENTUM: Step(Rule.MOMENTUM, 0.1, beta1=0.9),
    Rule.NESTEROV: Step(Rule.NESTEROV, 0.1, beta1=0.9),
    Rule.RMSPROP: Step(Rule.RMSPROP, 0.1, 1e-8, beta2=0.99),
    Rule.FTRL: Step(Rule.FTRL, 0.1, 1.0, l1=0.05, l2=0.02),
}


@st.composite
def steps(draw, rule):
    """The step of a rule, with or without each of its extras."""
    extras = {"scale": [1.0, 0.25], "clip": [math.inf, 1.5], "decay": [0.0, 0.1]}
    if rule is Rule.ADAM:
        extras["keep"] = [1.0, 0.9]
    if rule is Rule.FTRL:
        extras |= {"l1": [0.0, 0.05], "l2": [0.0, 0.02], "eps": [0.0, 1.0]}
    return STEPS[rule]._replace(**{name: draw(st.sampled_from(values)) for name, values in extras.items()})


def states_for(rule, weights, random):
    """Random states above 0, float32."""
    rows, dim = weights.shape
    shape = (rows,) if rule is Rule.ROWWISE_ADAGRAD else (rows, dim)
    return tuple(torch.from_numpy(random.random(shape, dtype=np.float32)) for _ in range(STATES[rule]))


def dense_step(step, weights, states, g, seen):
    """One step in float64 on the rows seen, by the formulas of torch.optim and of McMahan et al. (FTRL)."""
    g = g * step.scale
    norms = np.linalg.norm(g, axis=1, keepdims=True)
    g = g * np.where(norms > step.clip, step.clip / np.maximum(norms, 1e-300), 1.0) + step.decay * weights
    after, new_states = _formulas(step, weights, states, g)
    kept = [np.where(seen if old.ndim == 1 else seen[:, None], new, old)
            for old, new in zip(states, new_states, strict=True)]  # fmt: skip
    return np.where(seen[:, None], after, weights), kept


def _formulas(step, w, states, g):
    rate = step.rate
    if step.rule is Rule.SGD:
        return w - rate * g, []
    if step.rule is Rule.MOMENTUM:
        buffer = step.beta1 * states[0] + g
        return w - rate * buffer, [buffer]
    if step.rule is Rule.NESTEROV:
        buffer = step.beta1 * states[0] + g
        return w - rate * (g + step.beta1 * buffer), [buffer]
    if step.rule is Rule.ADAGRAD:
        total = states[0] + g**2
        return w - rate * g / (np.sqrt(total) + step.eps), [total]
    if step.rule is Rule.ROWWISE_ADAGRAD:
        total = states[0] + (g**2).mean(1)
        return w - rate * g / (np.sqrt(total) + step.eps)[:, None], [total]
    if step.rule is Rule.RMSPROP:
        mean = step.beta2 * states[0] + (1 - step.beta2) * g**2
        return w - rate * g / (np.sqrt(mean) + step.eps), [mean]
    if step.rule is Rule.ADAM:
        first = step.beta1 * states[0] + (1 - step.beta1) * g
        second = step.beta2 * states[1] + (1 - step.beta2) * g**2
        return w * step.keep - rate * first / (np.sqrt(second) * step.correction + step.eps), [first, second]
    n, z, l1, l2 = states[0], states[1] / rate, step.l1 / rate, step.l2 / rate
    z = z + g - (np.sqrt(n + g**2) - np.sqrt(n)) / rate * w
    n = n + g**2
    w = np.where(np.abs(z) <= l1, 0, -(z - np.sign(z) * l1) / ((step.eps + np.sqrt(n)) / rate + l2))
    return w, [n, z * rate]
