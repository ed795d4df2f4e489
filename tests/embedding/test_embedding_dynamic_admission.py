"""Which keys get a row: often enough, or by the draw."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from dynamic_training import make, read, train
from hypothesis import given
from hypothesis import strategies as st

from lanner.embedding import Constant
from lanner.embedding.dynamic import DynamicConfig
from lanner.embedding.dynamic.admission import Admission


@given(st.lists(st.lists(st.integers(-3, 9), max_size=8), max_size=12), st.integers(1, 5))
def test_a_key_gets_its_row_in_the_batch_of_its_nth_occurrence(batches, least):
    table, seen = make(initializer=Constant(1.0), min_count=least), Counter()
    for keys in batches:
        seen.update(keys)
        vectors = train(table, keys, 0.0)
        assert (vectors[:, 0] == 1.0).tolist() == [seen[key] >= least for key in keys]
        assert set(table.keys().tolist()) == {key for key in seen if seen[key] >= least}
    waiting = dict(zip(*(part.tolist() for part in table.waiting()[:2]), strict=True))
    assert waiting == {key: count for key, count in seen.items() if count < least}
    for block in table.blocks("t"):
        assert [seen[key] for key in block.keys.tolist()] == block.states["meta.count"].tolist()


def test_refusals_are_counted_once_a_batch_and_evaluation_counts_nothing():
    table = make(min_count=3)
    train(table, [1, 1, 2])
    read(table, [1, 2, 2, 2])
    assert table.counters.refused_admission == 2 and len(table) == 0
    train(table, [1, 2])
    assert table.keys().tolist() == [1] and table.counters.refused_admission == 3


def test_counts_go_on_after_a_pause():
    one, two = make(min_count=3), make(min_count=3)
    train(one, [1, 1, 2])
    two.wait(*one.waiting())
    train(two, [1, 2])
    assert two.keys().tolist() == [1]


def test_of_many_waiting_keys_those_that_occurred_lately_are_kept():
    table = make(min_count=2, max_waiting=100)
    for key in range(1000):
        train(table, [key, -1 - key % 40])
    assert set(table.keys().tolist()) == set(range(-40, 0))
    keys, counts, _ = table.waiting()
    assert 50 <= len(keys) <= 100 and set(keys.tolist()) >= set(range(950, 1000)) and (counts == 1).all()
    train(table, [960, 10])
    assert set(table.keys().tolist()) & {960, 10} == {960}


def test_a_batch_of_more_keys_than_may_wait():
    admission = Admission(DynamicConfig(min_count=3), 10, "t", 0)
    admitted, _ = admission.admit(np.arange(1000), np.full(1000, 2), 1)
    assert not admitted.any() and len(admission.waiting()[0]) <= 10
    assert admission.admit(np.array([999, 0]), np.ones(2, np.int64), 2)[0].tolist() == [True, False]


def test_the_draw_is_of_seed_key_and_step():
    keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 5000)
    one, two, other = make(probability=0.3), make(probability=0.3), make(probability=0.3, seed=1)
    for table, order in ((one, keys), (two, keys[::-1]), (other, keys)):
        for batch in np.split(order, 5):
            train(table, batch, 0.0, step=1)
    assert set(one.keys().tolist()) == set(two.keys().tolist()) != set(other.keys().tolist())
    assert len(one) == pytest.approx(1500, abs=150)
    train(one, keys, 0.0)
    assert len(one) == pytest.approx(5000 * (1 - 0.7**2), abs=150)


def test_probability_zero_lets_nothing_in_and_a_lost_draw_keeps_its_count():
    table = make(min_count=2, probability=0.0)
    for _ in range(3):
        train(table, [4])
    assert len(table) == 0 and table.waiting()[1].tolist() == [3] and table.counters.refused_admission == 3
