"""`DeviceIndex` against a dict."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.errors import DataError

DeviceIndex = pytest.importorskip("lanner.kernels.hashing.gpu").DeviceIndex
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

few = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), 2**32, 3 * 2**32])
keys_of = st.lists(few | st.integers(0, 40) | st.integers(-(2**63), 2**63 - 1), max_size=30)
steps = st.lists(st.tuples(st.sampled_from(["insert", "erase", "find"]), keys_of), max_size=8)


def tensor(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=DEVICE)


@given(steps)
@settings(max_examples=40, deadline=None)
def test_behaves_like_a_dict(steps: list[tuple[str, list[int]]]) -> None:
    index, expected = DeviceIndex(DEVICE), {}
    for number, (action, keys) in enumerate(steps):
        if action == "insert":
            rows = [1000 * number + place for place in range(len(keys))]
            assert index.insert(tensor(keys), tensor(rows)) == len(set(keys) - expected.keys())
            expected.update(zip(keys, rows, strict=True))
        elif action == "erase":
            assert index.erase(tensor(keys)).tolist() == [expected.pop(key, -1) for key in keys]
        else:
            assert index.find(tensor(keys)).tolist() == [expected.get(key, -1) for key in keys]
        assert len(index) == len(expected)
    assert dict(zip(*(part.tolist() for part in index.items()), strict=True)) == expected


@given(st.lists(keys_of, max_size=4))
@settings(max_examples=20, deadline=None)
def test_assign_numbers_keys_by_first_appearance(batches: list[list[int]]) -> None:
    index, expected = DeviceIndex(DEVICE), {}
    for keys in batches:
        rows = index.assign(tensor(keys)).tolist()
        assert rows == [expected.setdefault(key, len(expected)) for key in keys]


def test_grows_and_forgets_erased_keys() -> None:
    index, keys = DeviceIndex(DEVICE), torch.arange(2000, device=DEVICE) << 32
    for begin in range(0, 2000, 500):
        index.assign(keys[begin : begin + 500])
    held = index.nbytes
    for _ in range(5):  # erased keys make room again
        assert index.erase(keys[:900]).tolist() == list(range(900))
        assert index.insert(keys[:900], torch.arange(900, device=DEVICE)) == 900
    assert index.find(keys).tolist() == list(range(2000))
    assert index.nbytes == held
    index.erase(keys)
    assert len(index) == 0 and index.find(keys).max() == -1


def test_room_made_beforehand_is_kept() -> None:
    index = DeviceIndex(DEVICE, 1000)
    held = index.nbytes
    index.assign(torch.arange(1000, device=DEVICE))
    index.reserve(10)
    assert index.nbytes == held


def test_uint32_keys_are_the_same_keys_as_int64() -> None:
    index, keys = DeviceIndex(DEVICE), torch.tensor([5, 2**32 - 1], device=DEVICE)
    index.assign(keys)
    assert index.find(keys.to(torch.uint32)).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("keys", "rows", "message"),
    [
        (torch.tensor([1.0]), torch.tensor([0]), "float32"),
        (torch.tensor([[1]]), torch.tensor([0]), "2-D"),
        (torch.tensor([1, 2]), torch.tensor([0]), "2 keys with 1 rows"),
        (torch.tensor([1]), torch.tensor([-5]), "row -5"),
    ],
)
def test_refuses_wrong_input(keys: torch.Tensor, rows: torch.Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        DeviceIndex(DEVICE).insert(keys, rows)
