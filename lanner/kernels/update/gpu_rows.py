"""The optimizer step of a tile of rows, in Triton; the formulas stand in `reference.py`."""

from __future__ import annotations

import triton
import triton.language as tl

from lanner.kernels.formats.gpu import load_rows, store_rows
from lanner.kernels.update.gpu_names import chances_of
from lanner.kernels.update.rules import Rule

_SGD, _ADAGRAD, _ROWWISE, _ADAM, _MOMENTUM, _NESTEROV, _RMSPROP, _FTRL = (tl.constexpr(int(rule)) for rule in Rule)


@triton.jit
def step_rows(
    rows: tl.tensor,
    held: tl.tensor,
    summed: tl.tensor,
    weights: tl.tensor,
    states: tl.tensor,
    numbers: tl.tensor,
    names: tl.tensor,
    seed: tl.tensor,
    rule: tl.constexpr,
    dim: tl.constexpr,
    lanes: tl.constexpr,
) -> None:
    """One step of the distinct rows [n] held, whose summed gradients are [n, lanes] (0 beyond dim).

    `numbers` are those of `rules.numbers_of`: read at run time, so that a schedule compiles nothing. 16-bit
    weights are rounded by `names` (see `gpu_names`) and the uint64 `seed`.
    """
    rate, eps, beta1, gain1, beta2, gain2, correction, scale, decay, keep, clip, l1, l2 = numbers
    weight = load_rows(weights, None, rows, held, dim, lanes)
    g = summed * scale
    if clip < float("inf"):
        square = tl.sum(g * g, 1)
        g *= tl.where(square > clip * clip, clip / tl.sqrt_rn(square), 1.0)[:, None]
    if decay != 0:
        g += decay * weight
    if rule == _SGD:
        weight -= rate * g
    elif rule == _ROWWISE:
        history = tl.load(states[0] + rows, mask=held, other=0.0) + tl.sum(g * g, 1) / dim
        tl.store(states[0] + rows, history, mask=held)
        weight -= g * (rate / (tl.sqrt_rn(history) + eps))[:, None]
    elif rule == _ADAGRAD:
        squares = load_rows(states[0], None, rows, held, dim, lanes) + g * g
        store_rows(states[0], rows, held, squares, None, dim, lanes)
        weight -= rate * g / (tl.sqrt_rn(squares) + eps)
    elif rule == _RMSPROP:
        squares = beta2 * load_rows(states[0], None, rows, held, dim, lanes) + gain2 * g * g
        store_rows(states[0], rows, held, squares, None, dim, lanes)
        weight -= rate * g / (tl.sqrt_rn(squares) + eps)
    elif rule == _ADAM:
        first = load_rows(states[0], None, rows, held, dim, lanes)
        first += gain1 * (g - first)
        second = beta2 * load_rows(states[1], None, rows, held, dim, lanes) + gain2 * g * g
        store_rows(states[0], rows, held, first, None, dim, lanes)
        store_rows(states[1], rows, held, second, None, dim, lanes)
        weight = keep * weight - rate * first / (tl.sqrt_rn(second) * correction + eps)
    elif rule == _FTRL:
        before = load_rows(states[0], None, rows, held, dim, lanes)
        squares = before + g * g
        root = tl.sqrt_rn(squares)
        linear = load_rows(states[1], None, rows, held, dim, lanes) + rate * g - (root - tl.sqrt_rn(before)) * weight
        store_rows(states[0], rows, held, squares, None, dim, lanes)
        store_rows(states[1], rows, held, linear, None, dim, lanes)
        shrunk = tl.minimum(tl.maximum(linear, -l1), l1) - linear
        weight = tl.where(squares == 0, weight, shrunk / (root + eps + l2))
    else:
        velocity = beta1 * load_rows(states[0], None, rows, held, dim, lanes) + g
        store_rows(states[0], rows, held, velocity, None, dim, lanes)
        weight -= rate * (g + beta1 * velocity if rule == _NESTEROV else velocity)
    chances = None if names is None else chances_of(names, rows, held, seed)
    store_rows(weights, rows, held, weight, chances, dim, lanes)
