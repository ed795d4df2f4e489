"""The steps that rows have missed, on the CPU: each row's moments stay in registers while it takes them."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from lanner.kernels.formats.cpu import load_row, store_row
from lanner.kernels.simd import fma, get, lanes_from, load, memory_of, put, splat, sqrt, store, width
from lanner.kernels.update.cpu_rows import fetch
from lanner.kernels.update.rules import Rule

_AHEAD = 4  # rows between the one fetched and the one worked on
_ADAM = int(Rule.ADAM)


@nb.njit(nogil=True, cache=True)
def catch_up(
    begin: int,
    end: int,
    lanes: Any,
    weights: Any,
    dim: int,
    first: Any,
    second: Any,
    steps: Any,
    rows: Any,
    since: int,
    rates: Any,
    corrections: Any,
    beta1: float,
    beta2: float,
    eps: float,
    longest: int,
    rounds: bool,
    words: Any,
    columns: Any,
) -> None:
    """Bring rows[begin:end], which are distinct, to after the last of the steps; `first` and so on are flat.

    Where the format `rounds`, `words` and `columns` are those of the rows (see `update.names.words`).
    """
    table, firsts, seconds = memory_of(weights), memory_of(first), memory_of(second)
    missed_rates, missed_corrections = memory_of(rates), memory_of(corrections)
    count, fading, root_fading = since + len(rates), np.float32(beta1), np.float32(np.sqrt(beta2))
    for i in range(begin, end):
        row, taken = get(rows, i), np.int64(get(steps, get(rows, i)))
        for part in range(0, dim, width(lanes)):
            later = get(rows, min(i + _AHEAD, end - 1))
            fetch(table, dim, firsts, seconds, later, part, lanes_from(lanes, part, dim), _ADAM)
        if taken == 0 or taken >= count:
            continue
        missed, at = min(count - taken, longest), taken - since
        left1, left2 = np.float32(beta1 ** (count - taken)), np.float32(beta2 ** (count - taken))
        named = i if rounds else 0
        chance = get(words, named), get(columns, named)
        for part in range(0, dim, width(lanes)):
            piece, place = lanes_from(lanes, part, dim), row * dim + part
            m, v = load(firsts, place, piece), load(seconds, place, piece)
            store(firsts, place, m * splat(left1, lanes), piece)
            store(seconds, place, v * splat(left2, lanes), piece)
            weight, root = load_row(table, table, row, dim, part, piece), sqrt(v)
            for k in range(at, at + missed):
                m = m * splat(fading, lanes)
                root = root * splat(root_fading, lanes)
                down = fma(root, splat(get(missed_corrections, k), lanes), splat(np.float32(eps), lanes))
                weight = weight - m * splat(get(missed_rates, k), lanes) / down
            store_row(table, row, dim, part, weight, piece, chance)
        put(steps, row, np.int32(count))
