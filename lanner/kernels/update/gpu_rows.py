"""The optimizer step of a tile of rows, in Triton; the formulas stand in `lanner.embedding.optimizers`."""

from __future__ import annotations

import triton
import triton.language as tl

from lanner.kernels.update.rules import Rule, Step

_SGD, _ADAGRAD, _ROWWISE = (tl.constexpr(int(rule)) for rule in (Rule.SGD, Rule.ADAGRAD, Rule.ROWWISE_ADAGRAD))


def numbers_of(step: Step) -> tuple[float, ...]:
    """What `step_rows` takes of a step, at run time: a schedule compiles nothing."""
    gains = 1 - step.beta1, step.beta2, 1 - step.beta2
    return tuple(map(float, (step.rate, step.eps, *gains, step.correction, step.scale)))


@triton.jit
def step_rows(
    rows: tl.tensor,
    held: tl.tensor,
    summed: tl.tensor,
    weights: tl.tensor,
    state1: tl.tensor,
    state2: tl.tensor,
    rate: tl.tensor,
    eps: tl.tensor,
    gain1: tl.tensor,
    beta2: tl.tensor,
    gain2: tl.tensor,
    correction: tl.tensor,
    scale: tl.tensor,
    rule: tl.constexpr,
    dim: tl.constexpr,
    lanes: tl.constexpr,
) -> None:
    """One step of the distinct rows [n] held, whose summed gradients are [n, lanes] (zero beyond dim)."""
    columns = tl.arange(0, lanes)
    at = rows[:, None] * dim + columns[None, :]
    mask = held[:, None] & (columns < dim)[None, :]
    g = summed * scale
    weight = tl.load(weights + at, mask=mask, other=0.0).to(tl.float32)
    if rule == _SGD:
        delta = rate * g
    elif rule == _ADAGRAD:
        squares = tl.load(state1 + at, mask=mask, other=0.0) + g * g
        tl.store(state1 + at, squares, mask=mask)
        delta = rate * g / (tl.sqrt_rn(squares) + eps)
    elif rule == _ROWWISE:
        history = tl.load(state1 + rows, mask=held, other=0.0) + tl.sum(g * g, 1) / dim
        tl.store(state1 + rows, history, mask=held)
        delta = g * (rate / (tl.sqrt_rn(history) + eps))[:, None]
    else:
        first = tl.load(state1 + at, mask=mask, other=0.0)
        first += gain1 * (g - first)
        second = beta2 * tl.load(state2 + at, mask=mask, other=0.0) + gain2 * g * g
        tl.store(state1 + at, first, mask=mask)
        tl.store(state2 + at, second, mask=mask)
        delta = rate * first / (tl.sqrt_rn(second) * correction + eps)
    tl.store(weights + at, weight - delta, mask=mask)
