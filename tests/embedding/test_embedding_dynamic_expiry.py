"""Rows that are not used go after a time, in steps or seconds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from dynamic_training import make, train

from lanner.embedding.dynamic import DynamicConfig
from lanner.embedding.dynamic import table as table_module
from lanner.embedding.dynamic.expiry import Expiry


def test_rows_not_used_for_more_than_so_many_steps_go():
    table = make(ttl_steps=3)
    train(table, [1, 2])
    for keys, left in (([3], {1, 2, 3}), ([2, 3], {1, 2, 3}), ([3], {1, 2, 3}), ([3], {2, 3})):
        train(table, keys)
        assert set(table.keys().tolist()) == left
    assert table.counters.expired == 1
    train(table, [1, 3])
    assert table.counters.inserted == 4 and table.deleted_since("t", 4).tolist() == []
    train(table, [3])
    assert set(table.keys().tolist()) == {1, 3}


def test_a_large_table_is_looked_through_in_parts(monkeypatch):
    monkeypatch.setattr(table_module, "_SWEPT", 100)
    table = make(ttl_steps=2)
    train(table, np.arange(1000))
    sizes = []
    for _ in range(34):
        train(table, [5000])
        sizes.append(len(table))
    assert sizes[1] == 1001 and sizes[-1] == 1
    assert max(before - after for before, after in pairwise(sizes)) <= 100
    assert table.counters.expired == 1000


def test_seconds_are_told_by_the_steps_that_were_taken_then():
    now = [0.0]
    expiry = Expiry(DynamicConfig(ttl_seconds=64.0), lambda: now[0])
    assert expiry.wanted
    cutoffs = []
    for step in range(1, 201):
        now[0] = step * 2.0
        cutoffs.append(expiry.oldest(step))
    for step, cutoff in enumerate(cutoffs, 1):
        assert cutoff == (step - 32 if step > 33 else 0)  # step - 33 began 66 seconds ago
    now[0] += 1000.0
    assert expiry.oldest(201) == 201
    assert len(expiry._marks) < 70


def test_both_times_may_be_given_and_none():
    expiry = Expiry(DynamicConfig(ttl_seconds=1000.0, ttl_steps=5), lambda: 0.0)
    assert expiry.oldest(3) <= 0 and expiry.oldest(20) == 15
    assert not Expiry(DynamicConfig()).wanted


def test_a_table_forgets_by_the_clock():
    table, now = make(ttl_seconds=10.0), [0.0]
    table._expiry = Expiry(table.config, lambda: now[0])
    train(table, [1, 2])
    for now[0] in (6.0, 12.0):
        train(table, [2])
    assert set(table.keys().tolist()) == {2} and table.counters.expired == 1
