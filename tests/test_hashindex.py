"""HashIndex against a dict."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.errors import DataError
from lanner.hashindex import HashIndex, capacity_for

int64 = st.integers(-(2**63), 2**63 - 1)
few = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), 2**32, 2**33, 3 * 2**32])


def key_with_hash(number: int) -> int:
    """The key that hashes to `number`: the low bits are its home slot in a table of any size."""
    mixed = (number ^ number >> 32) * pow(0xD6E8FEB86659FD93, -1, 2**64) % 2**64
    return int(np.uint64(mixed ^ mixed >> 32).astype(np.int64))


LAST_SLOTS = [key_with_hash(other << 40 | 2**32 - 1 - slot) for other in range(40) for slot in range(3)]
"""Keys that all belong into the last three slots, so that their run goes on at the first ones."""

crowded = st.sampled_from(LAST_SLOTS)
steps = st.lists(
    st.tuples(
        st.sampled_from(["insert", "insert", "insert", "erase", "find", "items", "reserve"]),
        st.lists(few | crowded | st.integers(0, 200) | int64, max_size=12),
    ),
    max_size=60,
)


def contents(index: HashIndex) -> dict[int, int]:
    keys, rows = index.items()
    found = dict(zip(keys.tolist(), rows.tolist(), strict=True))
    assert len(found) == len(keys) == len(index)
    return found


@settings(deadline=None)
@given(st.lists(crowded | int64, max_size=200), steps)
def test_behaves_like_a_dict(first: list[int], steps: list[tuple[str, list[int]]]) -> None:
    index, expected = HashIndex(), {key: row for row, key in enumerate(first)}
    index.insert(np.array(first, np.int64), np.arange(len(first)))
    for number, (action, keys) in enumerate(steps, start=1):
        array = np.array(keys, np.int64)
        if action == "insert":
            rows = np.arange(len(keys)) + 1000 * number
            assert index.insert(array, rows) == len(set(keys) - expected.keys())
            expected.update(zip(keys, rows.tolist(), strict=True))
        elif action == "erase":
            assert index.erase(array).tolist() == [expected.pop(key, -1) for key in keys]
        elif action == "find":
            assert index.find(array).tolist() == [expected.get(key, -1) for key in keys]
        elif action == "items":
            assert contents(index) == expected
        else:
            index.reserve(10 * len(keys))
        assert len(index) == len(expected)
    assert contents(index) == expected
    asked = [*expected, *LAST_SLOTS]
    assert index.find(np.array(asked, np.int64)).tolist() == [expected.get(key, -1) for key in asked]


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


GROWING = {
    "random": np.random.default_rng(3).integers(-(2**63), 2**63 - 1, 6000),
    "in a row": np.arange(6000),
    "first slots": np.array([key_with_hash(number << 32 | number % 500) for number in range(6000)]),
    "last slots": np.array([key_with_hash(number << 32 | 2**32 - 1 - number % 500) for number in range(6000)]),
}


@pytest.mark.parametrize("name", GROWING)
def test_is_right_at_any_moment_of_growing(name: str) -> None:
    """Batches of 7 keys; growing from 4096 to 8192 slots takes about 100 of them."""
    keys, index = GROWING[name], HashIndex()
    index.assign(keys[:2860])
    rows, sizes = np.where(np.arange(6000) < 2860, np.arange(6000), -1), set()
    for begin in range(2860, 4260, 7):
        batch = np.arange(begin, begin + 7)
        assert index.insert(keys[batch], batch) == 7
        rows[batch] = batch
        gone = np.array([begin // 2, begin - 3, begin + 1])
        assert np.array_equal(index.erase(keys[gone]), rows[gone])
        rows[gone] = -1
        assert np.array_equal(index.find(keys), rows)
        assert np.array_equal(np.sort(index.items()[1]), rows[rows >= 0])
        sizes.add(index.nbytes // 16)
    assert sizes == {4096, 4096 + 8192, 8192}


def test_growing_ends_soon_and_moves_little_at_a_time() -> None:
    index = HashIndex(capacity_for(0) << 10)
    capacity = index.nbytes // 16
    limit = int(capacity * 0.7)
    index.assign(np.arange(limit))
    assert index.nbytes == 16 * capacity
    for begin in range(limit, limit + capacity // 8, 100):
        index.assign(np.arange(begin, begin + 100))
        assert index.nbytes == 16 * 3 * capacity
    index.assign(np.arange(limit + capacity // 6 + 200))
    assert index.nbytes == 16 * 2 * capacity


def test_growing_takes_room_made_meanwhile() -> None:
    index = HashIndex()
    index.assign(np.arange(720))
    before = index.nbytes
    index.reserve(5)
    assert index.nbytes == before == 16 * (1024 + 2048)
    index.reserve(5000)
    assert index.nbytes == 16 * capacity_for(5000)
    assert np.array_equal(index.assign(np.arange(5000)), np.arange(5000))
    assert index.nbytes == 16 * capacity_for(5000)


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
