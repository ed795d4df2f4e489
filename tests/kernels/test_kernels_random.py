"""Random fill: the same numbers everywhere, computed here with Python's own integers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lanner.kernels import random


def mixed(stream, counter):
    """SplitMix64's output for one counter."""
    mask = 2**64 - 1
    x = (stream + (counter + 1) * 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


@pytest.mark.parametrize(("stream", "start"), [(0, 0), (2**64 - 1, 7), (12345, 2**40)])
def test_values_are_a_function_of_stream_and_counter(stream, start):
    uniform, normal = np.zeros(50, np.float32), np.zeros((5, 10), np.float32)
    random.uniform(uniform, -1.0, 3.0, stream, start)
    random.normal(normal, 2.0, 0.5, stream, start)
    bits = [mixed(stream, start + i) for i in range(50)]
    np.testing.assert_allclose(uniform, [-1 + 4 * (b >> 40) / 2**24 for b in bits], rtol=1e-6, atol=1e-6)
    pairs = [(((b >> 32) + 0.5) / 2**32, (b & (2**32 - 1)) / 2**32) for b in bits]
    wanted = [2 + 0.5 * math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v) for u, v in pairs]
    np.testing.assert_allclose(normal.reshape(-1), wanted, rtol=1e-5, atol=1e-6)


def test_threads_change_nothing(monkeypatch):
    filled = []
    for threads in ("1", "3"):
        monkeypatch.setenv("LANNER_THREADS", threads)
        filled.append(np.zeros(500_000, np.float32))
        random.uniform(filled[-1], 0.0, 1.0, 9)
    assert np.array_equal(*filled) and filled[0].min() >= 0.0 and filled[0].max() <= 1.0


@pytest.mark.parametrize("name", ["uniform", "normal"])
def test_rows_of_keys_are_rows_of_the_table_while_keys_are_row_numbers(name):
    table, keys = np.zeros((40, 6), np.float32), np.array([7, 0, 39, 7])
    getattr(random, name)(table, -1.0, 1.0, 5)
    rows = np.zeros((4, 6), np.float32)
    getattr(random, f"{name}_rows")(rows, keys, -1.0, 1.0, 5)
    assert np.array_equal(rows, table[keys])


@pytest.mark.parametrize("dim", [1, 3, 8, 64])
def test_keys_whose_products_come_round_again_have_values_of_their_own(dim):
    keys = np.array([3, 3 + 2**58, 3 + 2**61, 3 - 2**63, -1, 2**63 - 1, -(2**63), 2**40, 2**41])
    rows = np.zeros((len(keys), dim), np.float32)
    random.uniform_rows(rows, keys, 0.0, 1.0, 9)
    assert len(np.unique(rows)) >= rows.size - 1
