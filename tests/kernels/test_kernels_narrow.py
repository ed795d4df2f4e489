"""Lookups of 32-bit keys against a dict."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.kernels.hashing import bucket, narrow

keys = st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 50) | st.sampled_from([0, 2**32 - 1]), max_size=80)


@settings(deadline=None)
@given(known=keys, asked=keys, data=st.data(), buckets=st.integers(0, 3))
def test_equals_a_dict(known: list[int], asked: list[int], data: st.DataObject, buckets: int) -> None:
    known = list(dict.fromkeys(known))
    missing = data.draw(st.lists(st.booleans(), min_size=len(asked), max_size=len(asked)) | st.just([]))
    slots, mask = narrow.build(np.array(known, np.int64))
    array, out = np.array(asked, np.uint32), np.full(len(asked), 99, np.uint32)
    where = (0, len(asked), slots, mask, array, np.array(missing, np.bool_))
    narrow.vocabulary_ids(*where, np.int64(1 + buckets), np.uint64(buckets), out)
    ids = {key: number for number, key in enumerate(known, start=1 + buckets)}
    others = bucket(array, 0, buckets) + 1 if buckets else np.zeros(len(asked), np.int64)
    expected = [ids.get(key, int(other)) for key, other in zip(asked, others, strict=True)]
    if missing:
        expected = [0 if gone else number for gone, number in zip(missing, expected, strict=True)]
    assert out.tolist() == expected


@pytest.mark.parametrize("step", [1, 1 << 16, 0x9E3779B1])
def test_regular_keys_do_not_pile_up(step: int) -> None:
    known = np.unique((np.arange(60_000, dtype=np.uint64) * np.uint64(step)).astype(np.uint32)).astype(np.int64)
    slots, mask = narrow.build(known)
    used = slots != 0
    filled = np.flatnonzero(used)
    with np.errstate(over="ignore"):  # the product wraps around, as it does in compiled code
        home = [int(narrow.home.py_func(key, mask)) for key in slots[used] >> np.uint64(32)]
    assert ((filled - np.array(home)) % len(slots)).mean() < 3
