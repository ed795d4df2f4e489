"""The vector layer: each operation against NumPy, at odd and even widths."""

from __future__ import annotations

import numba as nb
import numpy as np
import pytest
from kernel_assembly import packed_instructions, uses

from lanner.kernels.lanes import Lanes, lanes_for
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
    width,
)

WIDTHS = [1, 3, 17, 64]


@nb.njit
def arithmetic(lanes, a, b, out):
    x, y, n = load(a, 1, lanes), load(b, 1, lanes), width(lanes)
    store(out, 0, x + y)
    store(out, n, x - y)
    store(out, 2 * n, x * y)
    store(out, 3 * n, x / y)
    store(out, 4 * n, fma(x, y, x))
    store(out, 5 * n, sqrt(x))
    store(out, 6 * n, splat(np.float32(2.5), lanes))
    return total(x)


@pytest.mark.parametrize("count", WIDTHS)
def test_arithmetic(count):
    random = np.random.default_rng(count)
    a, b = random.random((2, count + 1), dtype=np.float32) + 0.5
    out = np.full(7 * count + 1, -7.0, np.float32)
    summed = arithmetic(Lanes(count), a, b, out)
    x, y = a[1:], b[1:]
    wanted = np.concatenate([x + y, x - y, x * y, x / y, x * y + x, np.sqrt(x), np.full(count, 2.5)])
    np.testing.assert_allclose(out[:-1], wanted, rtol=1e-6)
    np.testing.assert_allclose(summed, x.sum(), rtol=1e-6)
    assert out[-1] == -7.0  # an odd tail writes nothing beyond


@nb.njit
def doubled_in_parts(lanes, dim, row, out):
    summed = np.float32(0.0)
    for part in range(0, dim, width(lanes)):
        piece = lanes_from(lanes, part, dim)
        vector = load(row, part, piece)
        summed += total(vector)
        store(out, part, vector + vector, piece)
    return summed


@pytest.mark.parametrize("lanes", [Lanes(5), Lanes(3, 1), Lanes(8, 2), Lanes(6, 4), Lanes(12, 10)])
def test_the_last_part_of_a_row_may_be_shorter(lanes):
    row, out = np.arange(1, 12, dtype=np.float32)[:10], np.full(12, -7.0, np.float32)
    assert doubled_in_parts(lanes, 10, row, out) == 55.0
    np.testing.assert_array_equal(out[:10], 2 * row)
    assert (out[10:] == -7.0).all()


@nb.njit
def reverse(source, target):
    for i in range(source.size):
        put(target, i, get(source, source.size - 1 - i))


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint64, np.float32])
def test_get_and_put(kind):
    source = np.arange(5, dtype=kind)
    target = np.zeros_like(source)
    reverse(source, target)
    np.testing.assert_array_equal(target, source[::-1])


@nb.njit
def fetch(array, index, lanes):
    prefetch(array, index)
    prefetch_row(array, index, lanes)


@pytest.mark.parametrize("index", [0, 10**15, -(10**15)])
def test_prefetch_never_faults(index):
    fetch(np.zeros(4, np.float32), index, Lanes(64))


@pytest.mark.parametrize(("dim", "lanes"), [(1, 1), (64, 64), (128, 128), (130, 65), (192, 96), (256, 128)])
def test_long_rows_are_cut_into_equal_parts(dim, lanes):
    assert (lanes_for(dim).count, lanes_for(dim).tail) == (lanes, 0)


def test_the_last_part_is_shorter_where_equal_ones_would_be_narrow():
    for dim in range(129, 2000):
        count, tail = lanes_for(dim).count, lanes_for(dim).tail
        assert 64 <= count <= 128 and 0 <= tail < count and dim % count == tail, dim


def test_no_lanes_is_an_error():
    with pytest.raises(ValueError, match="at least 1 lane"):
        Lanes(0)


def test_vectors_stay_in_registers():
    ones = np.ones(65, np.float32)
    code = packed_instructions(arithmetic, Lanes(64), ones, ones, np.zeros(64 * 7, np.float32))
    assert all(uses(code, name) for name in ("addps", "subps", "mulps", "divps", "sqrtps"))
