"""HashIndex against a dict."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.errors import DataError
from lanner.hashindex import HashIndex, capacity_for

int64 = st.integers(-(2**63), 2**63 - 1)
few = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), 2**32, 2**33, 3 * 2**32])
steps = st.lists(st.tuples(st.sampled_from(["insert", "erase", "find"]), st.lists(few | st.integers(0, 40) | int64)))


@given(steps)
def test_behaves_like_a_dict(steps: list[tuple[str, list[int]]]) -> None:
    index, expected = HashIndex(), {}
    for number, (action, keys) in enumerate(steps):
        array = np.array(keys, np.int64)
        if action == "insert":
            rows = np.arange(len(keys)) + 1000 * number
            assert index.insert(array, rows) == len(set(keys) - expected.keys())
            expected.update(zip(keys, rows.tolist(), strict=True))
        elif action == "erase":
            assert index.erase(array).tolist() == [expected.pop(key, -1) for key in keys]
        else:
            assert index.find(array).tolist() == [expected.get(key, -1) for key in keys]
        assert len(index) == len(expected)
    found = zip(*(part.tolist() for part in index.items()), strict=True)
    assert dict(found) == expected


@given(st.lists(st.lists(few | int64)))
def test_assign_numbers_keys_by_first_appearance(batches: list[list[int]]) -> None:
    index, expected = HashIndex(), {}
    for keys in batches:
        rows = index.assign(np.array(keys, np.int64)).tolist()
        assert rows == [expected.setdefault(key, len(expected)) for key in keys]


PATTERNS = {
    "in a row": np.arange(200_000),
    "multiples of 2^32": np.arange(200_000) << 32,
    "multiples of 2^20": np.arange(200_000) << 20,
    "negative": -np.arange(200_000),
    "bits of doubles": np.linspace(0, 1, 200_000).view(np.int64),
    "random": np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 200_000),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_growth_erase_and_misses_at_size(name: str) -> None:
    keys = PATTERNS[name]
    index = HashIndex()
    rows = np.random.default_rng(1).permutation(len(keys))
    assert index.insert(keys, rows) == len(keys)
    assert np.array_equal(index.find(keys), rows)
    assert index.find(keys ^ (1 << 62)).max() == -1
    assert np.array_equal(index.erase(keys[::2]), rows[::2])
    assert len(index) == len(keys) // 2
    assert index.find(keys[::2]).max() == -1
    assert np.array_equal(index.find(keys[1::2]), rows[1::2])


def test_keys_that_come_in_the_order_of_another_index_do_not_pile_up() -> None:
    first = HashIndex()
    first.assign(np.random.default_rng(2).integers(-(2**63), 2**63 - 1, 500_000))
    keys, rows = first.items()
    second = HashIndex()
    for begin in range(0, len(keys), 1000):
        second.insert(keys[begin : begin + 1000], rows[begin : begin + 1000])
    assert np.array_equal(second.find(keys), rows)


def test_uint32_keys_are_the_same_keys_as_int64() -> None:
    keys = np.array([5, 2**32 - 1, 0], np.uint32)
    index = HashIndex()
    index.insert(keys, np.arange(3))
    assert index.find(keys.astype(np.int64)).tolist() == index.find(keys).tolist() == [0, 1, 2]


def test_room_made_beforehand_is_kept() -> None:
    index = HashIndex(1000)
    held = index.nbytes
    index.assign(np.arange(1000))
    assert index.nbytes == held == 16 * capacity_for(1000)
    index.reserve(10)
    assert index.nbytes == held


def test_find_writes_to_the_array_given() -> None:
    index, out = HashIndex(), np.empty(2, np.int64)
    index.assign(np.array([7]))
    assert index.find(np.array([8, 7]), out) is out
    assert out.tolist() == [-1, 0]


@pytest.mark.parametrize(
    ("keys", "rows", "message"),
    [
        (np.array([1.0]), np.array([0]), "float64"),
        (np.array([[1]]), np.array([0]), "2-D"),
        (np.array([1, 2]), np.array([0]), "2 keys with 1 rows"),
        (np.array([1]), np.array([-5]), "row -5"),
    ],
)
def test_refuses_wrong_input(keys: np.ndarray, rows: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        HashIndex().insert(keys, rows)
