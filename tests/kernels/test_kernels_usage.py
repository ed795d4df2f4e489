"""The use of rows: the fast kernels against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.kernels import usage


def random_usage(rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, 30, rows), rng.integers(0, 4, rows)], 1).astype(np.int32)


def some_keys(rows: int) -> np.ndarray:
    return np.random.default_rng(5).permutation(rows) - rows // 2


@given(st.integers(1, 300), st.integers(0, 2**32), st.integers(0, 35), st.integers(0, 400))
def test_kernels_equal_the_reference(rows: int, seed: int, step: int, wanted: int) -> None:
    table, keys = random_usage(rows, seed), some_keys(rows)
    for by in ("used", "count"):
        found = usage.coldest(table, keys, rows, step, wanted, by)
        assert np.array_equal(found, usage.coldest(table, keys, rows, step, wanted, by, backend="reference"))
    found = usage.unused(table, rows // 3, rows, step)
    assert np.array_equal(found, usage.unused(table, rows // 3, rows, step, backend="reference"))
    found = usage.free(table, rows // 3, rows, wanted)
    assert np.array_equal(found, usage.free(table, rows // 3, rows, wanted, backend="reference"))
    rng = np.random.default_rng(seed)
    entries, times = rng.integers(-1, rows, 2 * rows), rng.integers(1, 9, 2 * rows)
    for given_times in (None, times):
        one, two = table.copy(), table.copy()
        missing = usage.stamp(one, entries, 40, given_times)
        assert missing == usage.stamp(two, entries, 40, given_times, backend="reference") == (entries < 0).sum()
        assert np.array_equal(one, two)


@pytest.mark.parametrize("by", ["used", "count"])
def test_the_coldest_of_many_rows_however_they_lie(by: str) -> None:
    rows = 100_000
    shuffled, keys = random_usage(rows, 0), some_keys(rows)
    for table in (shuffled, shuffled[np.lexsort(shuffled.T)], shuffled[np.lexsort(shuffled.T)][::-1].copy()):
        for wanted in (10, 5_000, 70_000):
            found = usage.coldest(table, keys, rows, 29, wanted, by)
            assert np.array_equal(found, usage.coldest(table, keys, rows, 29, wanted, by, backend="reference"))


def test_a_sample_that_misleads_does_no_harm() -> None:
    rows = 100_000
    table, keys = np.full((rows, 2), 1, np.int32), some_keys(rows)
    table[1::6, 0] = 0  # the rows a sample of every sixth would see
    assert len(usage.coldest(table, keys, rows, 2, 50_000, "used")) == 50_000


def test_threads_lose_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANNER_THREADS", "4")
    table, entries = np.zeros((5, 2), np.int32), np.arange(400_000) % 4
    usage.stamp(table, entries, 7)
    assert table.tolist() == [[7, 100_000]] * 4 + [[0, 0]]


def test_counts_stop_where_they_would_overflow() -> None:
    table = np.array([[0, usage.MOST - 3]], np.int32)
    for _ in range(3):
        usage.stamp(table, np.zeros(2, np.int64), 1, np.full(2, 2**40))
    assert table.tolist() == [[1, usage.MOST]]
