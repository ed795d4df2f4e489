"""Holds and the clock: the fast kernels against plain NumPy, and what a sweep may choose."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lanner.kernels import residence
from lanner.kernels.residence import HOLDS, MOST, ROUNDS


def random_cache(slots: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    marks = np.stack([rng.integers(0, 2, slots), rng.integers(0, MOST + 1, slots)], 1).astype(np.int32)
    return marks, np.where(rng.random(slots) < 0.8, rng.integers(0, 1000, slots), -1)


@given(st.integers(1, 100), st.integers(0, 2**32), st.integers(0, 120))
def test_kernels_equal_the_reference(size: int, seed: int, wanted: int) -> None:
    one, keys = random_cache(size, seed)
    two, rng = one.copy(), np.random.default_rng(seed)
    slots = rng.integers(-1, size, 2 * size)
    for times, use in ((1, True), (1, False), (-1, False)):
        residence.hold(one, slots, times, use)
        residence.hold(two, slots, times, use, backend="reference")
        assert np.array_equal(one, two)
    hand = int(rng.integers(0, size))
    found, after = residence.sweep(one, keys, hand, wanted)
    expected, expected_after = residence.sweep(two, keys, hand, wanted, backend="reference")
    assert np.array_equal(found, expected) and after == expected_after and np.array_equal(one, two)
    free = np.flatnonzero((keys >= 0) & (one[:, HOLDS] == 0))
    assert len(found) == min(wanted, len(free)) and np.isin(found, free).all()


def test_a_row_in_use_outlasts_rows_that_came_once() -> None:
    marks, keys, hand = np.zeros((8, 2), np.int32), np.arange(8), 0
    for _ in range(20):
        residence.hold(marks, np.array([3]), 1, use=True)
        residence.hold(marks, np.array([3]), -1)
        chosen, hand = residence.sweep(marks, keys, hand, 4)
        assert 3 not in chosen and len(chosen) == 4
    assert marks[3, ROUNDS] > 0
