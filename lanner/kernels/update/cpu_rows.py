"""The optimizer step of one row on the CPU; the formulas stand in `reference.py`.

Whether there is something to clip or to decay, and which rule it is, is asked once a row, so that no rule pays for
another one's work.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from lanner.kernels.formats.cpu import fetch_row, load_row, store_row
from lanner.kernels.simd import (
    fma,
    get,
    lanes_from,
    load,
    prefetch,
    prefetch_row,
    put,
    splat,
    sqrt,
    store,
    total,
    where_greater,
    width,
)
from lanner.kernels.update.rules import (
    BETA1,
    BETA2,
    CLIP,
    CORRECTION,
    DECAY,
    EPS,
    GAIN1,
    GAIN2,
    KEEP,
    L1,
    L2,
    RATE,
    Rule,
)

_SGD, _ADAGRAD, _ROWWISE, _ADAM, _MOMENTUM, _NESTEROV, _RMSPROP, _FTRL = map(int, Rule)
_LEAST = np.float32(1e-45)  # the smallest number above 0


@nb.njit(nogil=True, cache=True, inline="always")
def fetch(weights: Any, dim: int, state1: Any, state2: Any, row: int, part: int, piece: Any, rule: int) -> None:
    """Ask for the columns from `part` on of a row and its state."""
    fetch_row(weights, state1, row, dim, part, piece)
    if rule == _ROWWISE:
        prefetch(state1, row)
    elif rule != _SGD:
        prefetch_row(state1, row * dim + part, piece)
        if rule in (_ADAM, _FTRL):
            prefetch_row(state2, row * dim + part, piece)


@nb.njit(nogil=True, cache=True, inline="always")
def step_row(
    lanes: Any,
    weights: Any,
    dim: int,
    state1: Any,
    state2: Any,
    row: int,
    g: Any,
    square: Any,
    rule: int,
    numbers: Any,
    chance: Any,
) -> None:
    """Step `row` with its gradient `g` [dim], which is changed; `square` is the sum of its squares.

    `chance` is what rounds 16-bit weights (see `formats.cpu.store_row`).
    """
    if square > get(numbers, CLIP) * get(numbers, CLIP):
        square = _clip(lanes, dim, g, square, get(numbers, CLIP))
    if get(numbers, DECAY) != 0:
        square = _decay(lanes, weights, dim, row, g, get(numbers, DECAY))
    if rule == _SGD:
        _descend(lanes, weights, dim, row, g, get(numbers, RATE), chance)
    elif rule == _ROWWISE:
        history = get(state1, row) + square / np.float32(dim)
        put(state1, row, history)
        _descend(lanes, weights, dim, row, g, get(numbers, RATE) / (np.sqrt(history) + get(numbers, EPS)), chance)
    elif rule == _ADAGRAD:
        _adagrad(lanes, weights, dim, row, state1, g, numbers, chance)
    elif rule == _ADAM:
        _adam(lanes, weights, dim, row, state1, state2, g, numbers, chance)
    elif rule == _RMSPROP:
        _rmsprop(lanes, weights, dim, row, state1, g, numbers, chance)
    elif rule == _FTRL:
        _ftrl(lanes, weights, dim, row, state1, state2, g, numbers, chance)
    else:
        _momentum(lanes, weights, dim, row, state1, g, numbers, rule == _NESTEROV, chance)


@nb.njit(nogil=True, cache=True)
def _clip(lanes: Any, dim: int, g: Any, square: Any, norm: Any) -> Any:
    """Scale `g`, whose squares sum to `square`, to the given norm; the new sum."""
    scale = norm / np.sqrt(square)
    for part in range(0, dim, width(lanes)):
        piece = lanes_from(lanes, part, dim)
        store(g, part, load(g, part, piece) * splat(scale, lanes), piece)
    return square * scale * scale


@nb.njit(nogil=True, cache=True)
def _decay(lanes: Any, weights: Any, dim: int, row: int, g: Any, decay: Any) -> Any:
    """Add `decay` times the row to `g`; the new sum of squares."""
    square = np.float32(0.0)
    for part in range(0, dim, width(lanes)):
        piece = lanes_from(lanes, part, dim)
        weight = load_row(weights, weights, row, dim, part, piece)
        decayed = fma(weight, splat(decay, lanes), load(g, part, piece))
        square += total(decayed * decayed)
        store(g, part, decayed, piece)
    return square


@nb.njit(nogil=True, cache=True, inline="always")
def _all(numbers: Any, place: int, lanes: Any) -> Any:
    """A vector whose every lane is one of the numbers."""
    return splat(get(numbers, place), lanes)


@nb.njit(nogil=True, cache=True, inline="always")
def _descend(lanes: Any, weights: Any, dim: int, row: int, g: Any, rate: Any, chance: Any) -> None:
    for part in range(0, dim, width(lanes)):
        piece = lanes_from(lanes, part, dim)
        weight = load_row(weights, weights, row, dim, part, piece)
        store_row(weights, row, dim, part, weight - load(g, part, piece) * splat(rate, lanes), piece, chance)


@nb.njit(nogil=True, cache=True, inline="always")
def _adagrad(lanes: Any, weights: Any, dim: int, row: int, sums: Any, g: Any, numbers: Any, chance: Any) -> None:
    rate, eps = _all(numbers, RATE, lanes), _all(numbers, EPS, lanes)
    for part in range(0, dim, width(lanes)):
        piece, at = lanes_from(lanes, part, dim), row * dim + part
        slope, weight = load(g, part, piece), load_row(weights, weights, row, dim, part, piece)
        squares = fma(slope, slope, load(sums, at, piece))
        store(sums, at, squares, piece)
        store_row(weights, row, dim, part, weight - slope * rate / (sqrt(squares) + eps), piece, chance)


@nb.njit(nogil=True, cache=True, inline="always")
def _adam(
    lanes: Any, weights: Any, dim: int, row: int, firsts: Any, seconds: Any, g: Any, numbers: Any, chance: Any
) -> None:
    rate, eps, correction = (
        _all(numbers, RATE, lanes),
        _all(numbers, EPS, lanes),
        _all(numbers, CORRECTION, lanes),
    )
    beta2, gain1, gain2 = (
        _all(numbers, BETA2, lanes),
        _all(numbers, GAIN1, lanes),
        _all(numbers, GAIN2, lanes),
    )
    keep = _all(numbers, KEEP, lanes)
    for part in range(0, dim, width(lanes)):
        piece, at = lanes_from(lanes, part, dim), row * dim + part
        slope, weight = load(g, part, piece), load_row(weights, weights, row, dim, part, piece)
        first, second = load(firsts, at, piece), load(seconds, at, piece)
        first = fma(slope - first, gain1, first)
        second = fma(slope * slope, gain2, second * beta2)
        store(firsts, at, first, piece)
        store(seconds, at, second, piece)
        delta = first * rate / fma(sqrt(second), correction, eps)
        store_row(weights, row, dim, part, weight * keep - delta, piece, chance)


@nb.njit(nogil=True, cache=True, inline="always")
def _rmsprop(lanes: Any, weights: Any, dim: int, row: int, means: Any, g: Any, numbers: Any, chance: Any) -> None:
    rate, eps = _all(numbers, RATE, lanes), _all(numbers, EPS, lanes)
    beta, gain = _all(numbers, BETA2, lanes), _all(numbers, GAIN2, lanes)
    for part in range(0, dim, width(lanes)):
        piece, at = lanes_from(lanes, part, dim), row * dim + part
        slope, weight = load(g, part, piece), load_row(weights, weights, row, dim, part, piece)
        mean = fma(slope * slope, gain, load(means, at, piece) * beta)
        store(means, at, mean, piece)
        store_row(weights, row, dim, part, weight - slope * rate / (sqrt(mean) + eps), piece, chance)


@nb.njit(nogil=True, cache=True, inline="always")
def _momentum(
    lanes: Any,
    weights: Any,
    dim: int,
    row: int,
    velocities: Any,
    g: Any,
    numbers: Any,
    ahead: bool,
    chance: Any,
) -> None:
    rate, momentum = _all(numbers, RATE, lanes), _all(numbers, BETA1, lanes)
    for part in range(0, dim, width(lanes)):
        piece, at = lanes_from(lanes, part, dim), row * dim + part
        slope, weight = load(g, part, piece), load_row(weights, weights, row, dim, part, piece)
        velocity = fma(load(velocities, at, piece), momentum, slope)
        store(velocities, at, velocity, piece)
        direction = fma(velocity, momentum, slope) if ahead else velocity
        store_row(weights, row, dim, part, weight - direction * rate, piece, chance)


@nb.njit(nogil=True, cache=True, inline="always")
def _ftrl(
    lanes: Any, weights: Any, dim: int, row: int, squares: Any, linears: Any, g: Any, numbers: Any, chance: Any
) -> None:
    rate, more = _all(numbers, RATE, lanes), splat(get(numbers, EPS) + get(numbers, L2), lanes)
    l1, less, least = _all(numbers, L1, lanes), splat(-get(numbers, L1), lanes), splat(_LEAST, lanes)
    for part in range(0, dim, width(lanes)):
        piece, at = lanes_from(lanes, part, dim), row * dim + part
        slope, weight = load(g, part, piece), load_row(weights, weights, row, dim, part, piece)
        before = load(squares, at, piece)
        after = fma(slope, slope, before)
        linear = fma(slope, rate, load(linears, at, piece)) - (sqrt(after) - sqrt(before)) * weight
        store(squares, at, after, piece)
        store(linears, at, linear, piece)
        cut = where_greater(linear, l1, l1, where_greater(less, linear, less, linear))
        new = (cut - linear) / (sqrt(after) + more)
        store_row(weights, row, dim, part, where_greater(least, after, weight, new), piece, chance)
