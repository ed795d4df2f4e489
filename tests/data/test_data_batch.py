"""Bags: what is refused, with the feature's name, before any kernel could read wild memory."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lanner.data import Bags, Batch
from lanner.errors import DataError

NAMES = ("color", "shape")


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


@given(st.lists(st.integers(0, 4), max_size=6), st.lists(st.integers(0, 4), max_size=6))
def test_lengths_become_offsets(first: list[int], second: list[int]) -> None:
    batch = min(len(first), len(second))
    lengths = [*first[:batch], *second[:batch]]
    bags = Bags.from_lengths(NAMES, torch.arange(sum(lengths)), ints(*lengths))
    assert bags.offsets is not None and bags.batch_size == batch
    assert bags.offsets.diff().tolist() == lengths
    bags.validate()


def test_one_hot_bags_need_no_offsets() -> None:
    bags = Bags(NAMES, ints(1, 2, 3, 4, 5, 6))
    bags.validate()
    assert bags.batch_size == 3
    with pytest.raises(DataError, match="5 one-hot ids do not divide among 2 features"):
        Bags(NAMES, ints(1, 2, 3, 4, 5)).validate()


def test_lengths_that_do_not_sum_to_the_ids() -> None:
    with pytest.raises(DataError, match="'shape': offsets end at 7, but there are 8 ids"):
        Bags.from_lengths(NAMES, torch.arange(8), ints(2, 2, 1, 2))


def test_lengths_that_do_not_divide_among_features() -> None:
    with pytest.raises(DataError, match="3 lengths do not divide among 2 features"):
        Bags.from_lengths(NAMES, torch.arange(3), ints(1, 1, 1))


def test_negative_length() -> None:
    with pytest.raises(DataError, match="'shape': sample 1 has length -1"):
        Bags.from_lengths(NAMES, torch.arange(4), ints(2, 2, 1, -1))


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ((0, 3, 2, 4, 8), "'color': sample 1 ends at 2, before its start 3"),
        ((0, 1, 5, 4, 8), "'shape': sample 0 ends at 4, before its start 5"),
        ((1, 2, 3, 4, 8), "'color': offsets start at 1, expected 0"),
        ((-1, 2, 3, 4, 8), "'color': offsets start at -1, expected 0"),
        ((0, 2, 3, 4, 7), "'shape': offsets end at 7, but there are 8 ids"),
        ((0, 2, 3, 4, 9), "'shape': offsets end at 9, but there are 8 ids"),
        ((0, 2, 3, 8), "4 offsets; expected F[*]B [+] 1 for F = 2 features"),
        ((), "0 offsets; expected F[*]B [+] 1 for F = 2 features"),
    ],
)
def test_broken_offsets(offsets: tuple[int, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Bags(NAMES, torch.arange(8), ints(*offsets)).validate()


def test_offsets_past_2_to_the_31_do_not_wrap() -> None:
    lengths = ints(2**31, 5)
    with pytest.raises(DataError, match="'shape': offsets end at 2147483653, but there are 3 ids"):
        Bags.from_lengths(NAMES, torch.arange(3), lengths)
    with pytest.raises(DataError, match="offsets end at 2147483653"):
        Bags.from_lengths(NAMES, torch.arange(3), torch.tensor([2**31 - 1, 6], dtype=torch.int32))


def test_weights_go_with_ids() -> None:
    Bags(NAMES, ints(1, 2), weights=torch.ones(2)).validate()
    with pytest.raises(DataError, match="3 weights for 2 ids"):
        Bags(NAMES, ints(1, 2), weights=torch.ones(3)).validate()


def test_no_features_and_no_samples() -> None:
    Bags((), ints()).validate()
    Bags((), ints(), ints(0)).validate()
    Bags(NAMES, ints(), ints(0)).validate()
    assert Bags((), ints()).batch_size == 0
    assert len(Batch(torch.empty(0, 3), Bags(NAMES, ints()), torch.empty(0, 1))) == 0
    with pytest.raises(DataError, match="2 ids belong to no feature"):
        Bags((), ints(1, 2)).validate()


@pytest.mark.parametrize("values", [torch.ones(4), torch.ones(2, 2, dtype=torch.int64)])
def test_values_must_be_a_flat_array_of_integers(values: Tensor) -> None:
    with pytest.raises(DataError, match="expected a flat int64 or int32 array"):
        Bags(NAMES, values).validate()
