"""The optimizer step on the CPU: gradients of equal rows summed in vector registers, each row stepped at once."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from lanner.kernels.simd import fma, get, load, prefetch, prefetch_row, put, splat, sqrt, store, total, width
from lanner.kernels.update.rules import Rule

_SGD, _ADAGRAD, _ROWWISE = int(Rule.SGD), int(Rule.ADAGRAD), int(Rule.ROWWISE_ADAGRAD)
_AHEAD = 16  # ids between the row and gradient fetched and those used


@nb.njit(nogil=True, cache=True)
def apply(
    lanes: Any,
    weights: Any,
    dim: int,
    state1: Any,
    state2: Any,
    packed: Any,
    first_row: int,
    words: Any,
    count: int,
    shift: int,
    rule: int,
    numbers: Any,
) -> None:
    """Step every distinct row of the sorted words (see `grouping.group`); `first_row` is that of their table.

    `numbers` are rate, eps, 1 - beta1, beta2, 1 - beta2, correction and scale of the step. Unused states are empty.
    """
    row_gradient, low = np.empty(dim, np.float32), np.uint64(shift)
    mask = (np.uint64(1) << low) - np.uint64(1)
    at = 0
    while at < count:
        row = get(words, at) >> low
        until = at + 1
        while until < count and get(words, until) >> low == row:
            until += 1
        square = np.float32(0.0)
        for part in range(0, dim, width(lanes)):
            summed = splat(np.float32(0.0), lanes)
            for i in range(at, until):
                later = get(words, min(i + _AHEAD, count - 1))
                _fetch_row(lanes, weights, dim, state1, state2, first_row + np.int64(later >> low), part, rule)
                prefetch_row(packed, np.int64(later & mask) * dim + part, lanes)
                summed = summed + load(packed, np.int64(get(words, i) & mask) * dim + part, lanes)
            summed = summed * splat(numbers[6], lanes)
            square += total(summed * summed)
            store(row_gradient, part, summed)
        _step(lanes, weights, dim, state1, state2, first_row + np.int64(row), row_gradient, square, rule, numbers)
        at = until


@nb.njit(nogil=True, cache=True, inline="always")
def _fetch_row(lanes: Any, weights: Any, dim: int, state1: Any, state2: Any, row: int, part: int, rule: int) -> None:
    """Ask for a row and its state."""
    start = row * dim + part
    prefetch_row(weights, start, lanes)
    if rule == _ROWWISE:
        prefetch(state1, row)
    elif rule != _SGD:
        prefetch_row(state1, start, lanes)
        if rule != _ADAGRAD:
            prefetch_row(state2, start, lanes)


@nb.njit(nogil=True, cache=True, inline="always")
def _step(
    lanes: Any,
    weights: Any,
    dim: int,
    state1: Any,
    state2: Any,
    row: int,
    row_gradient: Any,
    square: Any,
    rule: int,
    numbers: Any,
) -> None:
    """One optimizer step of one row; the formulas stand in `lanner.embedding.optimizers`."""
    rate, eps, gain1, beta2, gain2, correction = (
        numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]
    )  # fmt: skip
    if rule == _ROWWISE:
        history = get(state1, row) + square / np.float32(dim)
        put(state1, row, history)
        rate = rate / (np.sqrt(history) + eps)
    for part in range(0, dim, width(lanes)):
        at = row * dim + part
        g, weight = load(row_gradient, part, lanes), load(weights, at, lanes)
        if rule in (_SGD, _ROWWISE):
            delta = g * splat(rate, lanes)
        elif rule == _ADAGRAD:
            squares = fma(g, g, load(state1, at, lanes))
            store(state1, at, squares)
            delta = g * splat(rate, lanes) / (sqrt(squares) + splat(eps, lanes))
        else:
            first = load(state1, at, lanes)
            first = fma(g - first, splat(gain1, lanes), first)
            second = load(state2, at, lanes) * splat(beta2, lanes)
            second = fma(g * g, splat(gain2, lanes), second)
            store(state1, at, first)
            store(state2, at, second)
            delta = first * splat(rate, lanes) / fma(sqrt(second), splat(correction, lanes), splat(eps, lanes))
        store(weights, at, weight - delta)
