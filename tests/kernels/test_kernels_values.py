"""Counts and ids of values, in tables that grow meanwhile, against a Counter and a dict."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.hashindex import HashIndex
from lanner.kernels.hashing import bucket, values

keys = st.integers(-50, 50) | st.sampled_from([2**63 - 1, -(2**63)]) | st.integers(-(2**63), 2**63 - 1)
batches = st.lists(st.lists(st.tuples(keys, st.booleans()), max_size=20), max_size=20)


@settings(deadline=None)
@given(batches, st.booleans())
def test_counts_of_present_values(batches: list[list[tuple[int, bool]]], masked: bool) -> None:
    index, expected = HashIndex(), Counter()
    for batch in batches:
        array = np.array([key for key, _ in batch], np.int64)
        missing = np.array([gone and masked for _, gone in batch], np.bool_)
        index.fill(values.count_keys, array, missing if masked else np.zeros(0, np.bool_))
        expected.update(key for key, gone in batch if not (gone and masked))
    found, rows = index.items()
    assert dict(zip(found.tolist(), (rows + 1).tolist(), strict=True)) == expected


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(keys, st.integers(1, 2**40)), max_size=20), max_size=20))
def test_counts_add_up(batches: list[list[tuple[int, int]]]) -> None:
    index, expected = HashIndex(), Counter()
    for batch in batches:
        pairs = np.array(batch, np.int64).reshape(-1, 2)
        index.fill(values.add_counts, np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]))
        for key, count in batch:
            expected[key] += count
    found, rows = index.items()
    assert dict(zip(found.tolist(), (rows + 1).tolist(), strict=True)) == expected


@settings(deadline=None)
@given(batches, st.lists(keys, max_size=30), st.integers(0, 3))
def test_ids_while_the_table_grows(batches: list[list[tuple[int, bool]]], asked: list[int], buckets: int) -> None:
    index, first = HashIndex(), 1 + buckets
    known: dict[int, int] = {}
    for batch in batches:
        index.assign(np.array([key for key, _ in batch], np.int64))
        for key, _ in batch:
            known.setdefault(key, first + len(known))
        array, out = np.array([*asked, *known], np.int64), np.empty(len(asked) + len(known), np.int64)
        missing = np.arange(len(array)) % 5 == 0
        where = 0, len(array), index.slots, index.plan
        values.vocabulary_ids(*where, array, missing, np.int64(first), np.uint64(buckets), out)
        others = bucket(array, 0, buckets) + 1 if buckets else np.zeros(len(array), np.int64)
        ids = [known.get(key, int(other)) for key, other in zip(array.tolist(), others, strict=True)]
        assert out.tolist() == np.where(missing, 0, np.array(ids, np.int64)).tolist()
