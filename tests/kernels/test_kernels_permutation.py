"""The pseudo-random order: a permutation for every size, equal to the plain reference, and random enough."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.kernels.permutation import permute, sides
from lanner.kernels.permutation.reference import place

PINNED = [3, 1, 4, 0, 8, 7, 5, 2, 9, 6]
SEEDS = st.integers(0, 2**64 - 1)


@settings(deadline=None)
@given(total=st.integers(0, 3000), seed=SEEDS, epoch=st.integers(0, 1000))
def test_every_number_stands_once(total: int, seed: int, epoch: int) -> None:
    assert sorted(permute(0, total, total, seed, epoch)) == list(range(total))


@settings(deadline=None)
@given(total=st.integers(1, 2**62), seed=SEEDS, epoch=st.integers(0, 1000), data=st.data())
def test_equals_the_reference_at_any_place(total: int, seed: int, epoch: int, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, total - 1))
    end = min(begin + 3, total)
    found = permute(begin, end, total, seed, epoch)
    assert found.tolist() == [place(position, total, seed, epoch) for position in range(begin, end)]
    assert found.min() >= 0 and found.max() < total


@given(total=st.integers(0, 2**62))
def test_the_network_is_hardly_larger_than_the_range(total: int) -> None:
    left, right = sides(total)
    assert total <= left * right <= total + left


def test_the_order_is_pinned() -> None:
    """Resuming a run under a later release needs the same order."""
    assert permute(0, 10, 10, 7, 0).tolist() == [place(position, 10, 7, 0) for position in range(10)]
    assert permute(0, 10, 10, 7, 0).tolist() == PINNED


def test_places_outside_the_order_are_refused() -> None:
    for begin, end in ((-1, 2), (3, 2), (0, 11)):
        with pytest.raises(ValueError, match="lie outside an order of 10"):
            permute(begin, end, 10)


def test_all_orders_of_four_are_about_as_frequent() -> None:
    orders = Counter(tuple(permute(0, 4, 4, seed, 0)) for seed in range(4800))
    expected = 4800 / math.factorial(4)
    assert sum((count - expected) ** 2 / expected for count in orders.values()) < 49.7  # 99.9 % of chi-squared, 23
    assert len(orders) == 24


def test_neighbours_places_and_epochs_are_unrelated() -> None:
    order = permute(0, 100_000, 100_000, 3, 0)
    following = permute(0, 100_000, 100_000, 3, 1)
    for other in (np.arange(100_000), np.roll(order, 1), following, permute(0, 100_000, 100_000, 4, 0)):
        assert abs(np.corrcoef(order, other)[0, 1]) < 0.015
    assert (order == following).sum() < 10
