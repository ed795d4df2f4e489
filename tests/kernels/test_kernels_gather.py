"""Gathering from scattered memory equals NumPy indexing, for every element type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.kernels import gather
from lanner.kernels.gather import reference

SIZES = st.lists(st.integers(0, 12), min_size=1, max_size=5).filter(any)


def starts_of(sizes: list[int]) -> np.ndarray[Any, Any]:
    return np.cumsum([0, *sizes]).astype(np.int64)


def addresses_of(segments: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    return np.array([segment.ctypes.data for segment in segments], np.int64)


@pytest.mark.parametrize("kind", list(gather.KINDS), ids=str)
def test_columns_of_every_type(kind: Any) -> None:
    random = np.random.default_rng(0)
    sizes = [5, 0, 3, 9]
    segments = [random.integers(0, 100, size).astype(kind) for size in sizes]
    rows = random.integers(0, sum(sizes), 40)
    places = gather.locate(rows, starts_of(sizes))
    for target in (np.float32, np.int64):
        found = gather.column(places, addresses_of(segments), gather.KINDS[kind], np.empty(40, target))
        np.testing.assert_array_equal(found, reference.column(rows, segments))


@settings(deadline=None)
@given(sizes=SIZES, data=st.data())
def test_rows_are_located_in_their_segments(sizes: list[int], data: st.DataObject) -> None:
    rows = np.array(data.draw(st.lists(st.integers(0, sum(sizes) - 1), max_size=30)), np.int64)
    places = gather.locate(rows, starts_of(sizes))
    expected = [(segment, row) for segment, size in enumerate(sizes) for row in range(size)]
    assert list(zip(places.segment, places.row, strict=True)) == [expected[row] for row in rows]


def test_rows_beyond_2_to_the_31_are_located() -> None:
    starts = np.array([0, 2_500_000_000, 2_500_000_010, 7_500_000_000], np.int64)
    places = gather.locate(np.array([2_499_999_999, 2_500_000_003, 7_499_999_999]), starts)
    assert places.segment.tolist() == [0, 1, 2]
    assert places.row.tolist() == [2_499_999_999, 3, 4_999_999_989]


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("width", [1, 13])
def test_blocks_of_neighbouring_numbers(kind: Any, width: int) -> None:
    random = np.random.default_rng(1)
    segments = [random.normal(size=(size, width)).astype(kind) for size in (4, 6)]
    rows = random.integers(0, 10, 25)
    found = gather.block(gather.locate(rows, starts_of([4, 6])), addresses_of(segments), np.empty((25, width), kind))
    np.testing.assert_array_equal(found, reference.column(rows, segments))


@settings(deadline=None)
@given(sizes=SIZES, wide=st.booleans(), large=st.booleans(), seed=st.integers(0, 99))
def test_bags_beside_one_hot_columns(sizes: list[int], wide: bool, large: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    lists = [[random.integers(0, 300, random.integers(0, 4)).astype(np.uint16) for _ in range(n)] for n in sizes]
    ends = [np.cumsum([0, *map(len, bags)]).astype(np.int64 if wide else np.int32) for bags in lists]
    flat = [np.concatenate([np.empty(0, np.uint16), *bags]) for bags in lists]
    single = [random.integers(0, 10, n).astype(np.uint8) for n in sizes]
    rows = random.integers(0, sum(sizes), 15)
    places = gather.locate(rows, starts_of(sizes))
    values = np.stack([addresses_of(single), addresses_of(flat)], axis=1)
    end_addresses = np.stack([np.zeros(len(sizes), np.int64), addresses_of(ends)], axis=1)
    counts = np.array([[0, len(segment)] for segment in flat], np.int64)
    kinds, widths = np.array([0, 1], np.uint8), np.array([0, 8 if wide else 4], np.uint8)
    offsets = gather.lengths(places, end_addresses, widths, counts)
    assert not isinstance(offsets, tuple)
    out = np.empty(int(offsets[-1]), np.int64 if large else np.int32)
    lasts = np.array([9, 299], np.uint64)
    assert gather.bags(places, values, kinds, lasts, end_addresses, widths, offsets, out) is None
    bag_offsets, bag_ids = reference.bags(rows, lists)
    assert out[:15].tolist() == reference.column(rows, single).tolist()
    assert out[15:].tolist() == bag_ids.tolist()
    assert offsets.tolist() == [*range(15), *(15 + bag_offsets)]


def test_the_first_id_out_of_range_is_reported() -> None:
    columns = [np.array([1, 2, 3, 4], np.uint8), np.array([1, 9, 3, -7], np.int64)]
    values = np.array([[column.ctypes.data for column in columns]], np.int64)
    kinds = np.array([gather.KINDS[column.dtype] for column in columns], np.uint8)
    lasts = np.array([4, 8], np.uint64)
    starts = np.array([0, 4], np.int64)
    for rows, expected in (([0, 2], None), ([3, 1, 0], (1, 0, -7)), ([0, 1, 3], (1, 1, 9))):
        places = gather.locate(np.array(rows), starts)
        out = np.empty((2, len(rows)), np.int32)
        assert gather.ids(places, values, kinds, lasts, out) == expected
