"""The optimizer step on the CPU: gradients of equal rows summed in vector registers, each row stepped at once."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from lanner.kernels.random.cpu import mix
from lanner.kernels.simd import get, lanes_from, load, memory_of, prefetch_row, splat, store, total, width
from lanner.kernels.update.cpu_rows import fetch, step_row
from lanner.kernels.update.names import COLUMN, FIRST, PACE
from lanner.kernels.update.names import FIRST_ROW as NAMED
from lanner.kernels.update.rules import SCALE

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
    stream: Any,
    name: Any,
    keys: Any,
    row_gradient: Any,
) -> None:
    """Step every distinct row of the sorted words (see `grouping.group`); `first_row` is that of their table.

    `numbers` are those of the step (see `rules.numbers_of`), float32. Unused states are empty. 16-bit
    weights are rounded by the uint64 `stream`, the table's `name` (a line of `Names.tables`) and the `keys` of rows,
    if there are some. `row_gradient` has room for `dim` floats.
    """
    table, memory1, memory2, gradient = (
        memory_of(weights),
        memory_of(state1),
        memory_of(state2),
        memory_of(row_gradient),
    )
    how, called, known, low = memory_of(numbers), memory_of(name), memory_of(keys), np.uint64(shift)
    mask, scale = (np.uint64(1) << low) - np.uint64(1), splat(get(how, SCALE), lanes)
    at = 0
    while at < count:
        row = get(words, at) >> low
        until = at + 1
        while until < count and get(words, until) >> low == row:
            until += 1
        square = np.float32(0.0)
        for part in range(0, dim, width(lanes)):
            piece = lanes_from(lanes, part, dim)
            summed = splat(np.float32(0.0), lanes)
            for i in range(at, until):
                later = get(words, min(i + _AHEAD, count - 1))
                fetch(table, dim, memory1, memory2, first_row + np.int64(later >> low), part, piece, rule)
                prefetch_row(packed, np.int64(later & mask) * dim + part, lanes)
                summed = summed + load(packed, np.int64(get(words, i) & mask) * dim + part, piece)
            summed = summed * scale
            square += total(summed * summed)
            store(gradient, part, summed, piece)
        row_number = first_row + np.int64(row)
        key = get(known, row_number) if keys.size else row_number - get(called, NAMED)
        chance = mix(stream, np.uint64(key * get(called, PACE) + get(called, FIRST))), get(called, COLUMN)
        step_row(lanes, table, dim, memory1, memory2, row_number, gradient, square, rule, how, chance)
        at = until
