"""The Norm kernel against its `struct` reference, on whole and on damaged bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.kernels import norm


def records(rows: int, words: int, slots: int, key_size: int, seed: int) -> tuple[Any, list[Any], Any]:
    random = np.random.default_rng(seed)
    numbers = random.normal(size=(rows, words)).astype(np.float32)
    lengths = random.integers(0, 4, (slots, rows))
    offsets = np.concatenate([np.zeros((slots, 1), np.int64), np.cumsum(lengths, axis=1)], axis=1).astype(np.int64)
    low, high = (0, 2**32) if key_size == 4 else (-(2**63), 2**63 - 1)
    keys = [random.integers(low, high, int(ends[-1]), dtype=np.int64) for ends in offsets]
    return numbers, keys, offsets


@given(
    rows=st.integers(0, 9),
    words=st.integers(0, 5),
    slots=st.integers(0, 4),
    key_size=st.sampled_from([4, 8]),
    checked=st.booleans(),
    seed=st.integers(0, 99),
)
def test_packed_records_come_apart_again(
    rows: int, words: int, slots: int, key_size: int, checked: bool, seed: int
) -> None:
    numbers, keys, offsets = records(rows, words, slots, key_size, seed)
    data = norm.pack(numbers, keys, offsets, key_size, checked)
    assert data.tobytes() == norm.pack(numbers, keys, offsets, key_size, checked, backend="reference").tobytes()
    found = norm.scan(data, 0, rows, words, slots, key_size, checked)
    assert (found.end, found.stop, len(found.starts)) == (len(data), 0, rows)
    assert not found.states.any()
    assert np.array_equal(found.lengths, np.diff(offsets, axis=1).T)
    for backend in ("cpu", "reference"):
        again, slot_keys = norm.unpack(data, found.starts, found.lengths, words, key_size, backend)  # type: ignore[arg-type]
        assert np.array_equal(again, numbers)
        assert all(np.array_equal(a, b) for a, b in zip(slot_keys, keys, strict=True))


@given(
    damage=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=3),
    cut=st.integers(0, 30),
    checked=st.booleans(),
    last=st.booleans(),
    seed=st.integers(0, 99),
)
def test_damaged_bytes_are_judged_alike(
    damage: list[tuple[int, int]], cut: int, checked: bool, last: bool, seed: int
) -> None:
    numbers, keys, offsets = records(8, 2, 3, 4, seed)
    data = norm.pack(numbers, keys, offsets, 4, checked).copy()
    for at, bits in damage:
        data[at % len(data)] ^= bits
    data = data[: len(data) - cut]
    ours = norm.scan(data, 0, 8, 2, 3, 4, checked, last)
    theirs = norm.scan(data, 0, 8, 2, 3, 4, checked, last, backend="reference")
    assert (ours.end, ours.stop) == (theirs.end, theirs.stop)
    assert np.array_equal(ours.states, theirs.states)
    assert np.array_equal(ours.starts, theirs.starts)
    whole = ours.states == norm.GOOD
    assert np.array_equal(ours.lengths[whole], theirs.lengths[whole])


@pytest.mark.parametrize(
    ("byte", "state"), [(4, norm.BAD_SUM), (-1, norm.BAD_SUM), (0, norm.TORN), (2, norm.TORN), (3, norm.TORN)]
)
def test_a_changed_byte_spoils_its_record_alone(byte: int, state: int) -> None:
    numbers, keys, offsets = records(3, 2, 2, 4, 1)
    parts = [norm.pack(numbers[r : r + 1], *_row(keys, offsets, r), 4, True).copy() for r in range(3)]
    parts[1][byte] ^= 1
    found = norm.scan(np.concatenate(parts), 0, 3, 2, 2, 4, True)
    assert found.states.tolist() == [norm.GOOD, state, norm.GOOD]


def _row(keys: list[Any], offsets: Any, row: int) -> tuple[list[Any], Any]:
    chosen = [slot[ends[row] : ends[row + 1]] for slot, ends in zip(keys, offsets, strict=True)]
    return chosen, np.array([[0, len(slot)] for slot in chosen], np.int64)
