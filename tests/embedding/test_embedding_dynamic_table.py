"""Dynamic tables: rows by key, against static tables and plain dictionaries."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from dense_optimizers import OPTIMIZERS
from dynamic_training import layout, make, read, train
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.embedding import SGD, Adagrad, Adam, Constant, Normal, TableConfig, Uniform
from lanner.embedding.dynamic import DynamicConfig
from lanner.embedding.dynamic.table import DynamicTable
from lanner.embedding.joint import JointTable
from lanner.errors import ConfigError
from lanner.kernels import memory
from lanner.kernels.update import update

LOWEST, HIGHEST = -(2**63), 2**63 - 1


def adds_up(table):
    c = table.counters
    return c.inserted - c.evicted - c.expired - c.erased == len(table) == len(table.keys())


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
@pytest.mark.parametrize("extras", [{}, {"weight_decay": 0.1, "clip_norm": 1.0}], ids=str)
def test_trains_like_a_static_table_where_keys_are_row_numbers(optimizer, extras):
    optimizer = replace(optimizer, **extras)
    rng, dim, rows = np.random.default_rng(0), 6, 40
    static = JointTable([TableConfig("t", rows, dim, Normal(0, 0.5))], optimizer, 3)
    table = make(optimizer, dim, initializer=Normal(0, 0.5), seed=3)
    for step in range(1, 21):
        keys, gradient = rng.integers(0, rows, 30), torch.from_numpy(rng.normal(size=(30, dim)).astype(np.float32))
        lines = layout(dim)
        lines[0, 2] = rows
        update(
            static.weights, tuple(static.states.values()), gradient.view(-1), lines, torch.from_numpy(keys), None, None,
            30, None, static.numbers(step, 1 / step, 1.0),
        )  # fmt: skip
        train(table, keys, gradient, lr_scale=1 / step)
    keys = table.keys()
    assert np.array_equal(table.weight_of(keys), static.weights[keys].numpy())
    for block in table.blocks("t"):
        for name, state in static.states.items():
            assert np.array_equal(block.states[name], state[block.keys].numpy())


def test_any_key_is_legal_and_repeated_ones_share_a_row():
    table = make(initializer=Uniform(-1, 1))
    keys = [0, -1, LOWEST, HIGHEST, 0, 2**32, -1, 1]
    first = train(table, keys, 0.0)
    assert len(table) == 6 and sorted(table.keys().tolist()) == sorted(set(keys))
    assert np.array_equal(first[0], first[4]) and np.array_equal(first[1], first[6])
    assert len(np.unique(first[:, 0])) == 6
    vectors, rows = read(table, keys)
    assert np.array_equal(vectors, first) and rows.min() == 1


def test_first_values_depend_on_seed_and_key_alone():
    keys = np.random.default_rng(1).integers(LOWEST, HIGHEST, 300)
    one, two, other = make(), make(), make(seed=1)
    train(one, keys, 0.0)
    for key in keys[::-1]:
        train(two, [key], 0.0)
    train(other, keys, 0.0)
    assert np.array_equal(one.weight_of(keys), two.weight_of(keys))
    assert not np.array_equal(one.weight_of(keys), other.weight_of(keys))


def test_evaluation_neither_inserts_nor_counts():
    table = make(default=0.25)
    train(table, [5])
    vectors, rows = read(table, [5, 6, 6])
    assert rows[0] == 1 and rows[1:].tolist() == [0, 0] and (vectors[1:] == 0.25).all()
    assert len(table) == 1 and next(table.blocks("t")).states["meta.count"].tolist() == [1]
    assert (table.weight_of(np.array([6])) == 0.25).all()


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: type(optimizer).__name__)
def test_refused_keys_read_and_leave_the_default(optimizer):
    table = make(optimizer, max_rows=2, eviction="none", default=-1.0)
    train(table, [1, 2])
    for _ in range(3):
        seen = train(table, [1, 7, 8, 7], 2.0)
        assert (seen[1:] == -1.0).all()
    assert (read(table, [9])[0] == -1.0).all() and table.counters.refused_full == 6
    for name, form in optimizer.row_states(4).items():
        assert (table.states[name][0] == form.initial).all()


@pytest.mark.parametrize("eviction", ["none", "lru", "lfu"])
def test_one_batch_with_more_new_keys_than_rows(eviction):
    table = make(max_rows=100, eviction=eviction, initializer=Uniform(-1, 1), default=5.0)
    keys = np.arange(150) * 7 - 300
    own = make(initializer=Uniform(-1, 1))
    train(own, keys, 0.0)
    seen = train(table, keys, 0.0)
    counters = table.counters
    assert counters.inserted + counters.refused_full == 150 and len(table) == counters.inserted == 100
    assert counters.evicted == 0 and adds_up(table)
    assert np.array_equal(seen[:100], own.weight_of(keys[:100])) and (seen[100:] == 5.0).all()
    assert np.array_equal(read(table, keys)[0], seen)
    train(table, keys[100:], 0.0)
    assert counters.evicted == (0 if eviction == "none" else 50) and adds_up(table)
    assert counters.refused_full == (100 if eviction == "none" else 50)
    assert (read(table, keys[100:])[0] == (5.0 if eviction == "none" else own.weight_of(keys[100:]))).all()


def test_a_row_used_again_starts_afresh():
    table = make(Adam(0.1), max_rows=1, eviction="none", initializer=Constant(1.0))
    for _ in range(50):
        train(table, [111])
    assert table.erase(np.array([111, 111, 5])) == 1
    train(table, [222], 0.0)
    block = next(table.blocks("t"))
    assert block.keys.tolist() == [222] and (block.weights == 1.0).all()
    assert block.states["meta.count"].tolist() == [1] and block.states["meta.used"].tolist() == [51]
    assert not block.states["first"].any() and not block.states["second"].any()
    assert table.counters.erased == 1 and adds_up(table)


def test_lru_evicts_what_was_used_longest_ago_and_never_in_its_step():
    table = make(max_rows=64, eviction="lru")
    for step in range(64):
        train(table, [step])
    train(table, [0, 1])
    train(table, [100])
    left = set(table.keys().tolist())
    assert table.counters.evicted == 2 and left == {0, 1, *range(4, 64), 100}
    train(table, np.arange(200, 264))
    assert set(table.keys().tolist()) == set(range(200, 264)) and adds_up(table)


def test_lfu_evicts_what_was_used_least_of_equals_the_older():
    table = make(max_rows=4, eviction="lfu")
    for keys in ([1, 1, 1], [2, 2], [3, 3], [4, 4, 4, 4], [5]):
        train(table, keys)
    assert set(table.keys().tolist()) == {1, 3, 4, 5}
    train(table, [6])
    assert set(table.keys().tolist()) == {1, 3, 4, 6}


def test_several_lookups_of_one_step_are_safe_from_each_other():
    table = make(max_rows=10, eviction="lru", initializer=Uniform(-1, 1))
    table.step = 7
    first = [table.rows_of("t", np.arange(6), True), table.rows_of("t", np.arange(6, 20), True)]
    assert (first[0] > 0).all() and first[1].tolist()[4:] == [0] * 10 and len(set(first[0]) | set(first[1])) == 11
    assert np.array_equal(table.rows_of("t", np.arange(6), True), first[0])


def test_occurrences_may_come_counted():
    one, two = make(min_count=4), make(min_count=4)
    one.rows_of("t", np.array([1, 2, 1, 1, 2, 1, 3]), True)
    two.rows_of("t", np.array([1, 2, 3]), True, times=np.array([4, 2, 1]))
    assert one.keys().tolist() == two.keys().tolist() == [1]
    assert [dict(zip(*map(np.ndarray.tolist, t.waiting()[:2]), strict=True)) for t in (one, two)] == [{2: 2, 3: 1}] * 2
    for table in (one, two):
        table.rows_of("t", np.array([1]), True, times=np.array([10]))
        assert next(table.blocks("t")).states["meta.count"].tolist() == [14]


actions = st.lists(
    st.tuples(
        st.sampled_from(["train", "train", "train", "erase", "read"]),
        st.lists(st.integers(-3, 25) | st.sampled_from([LOWEST, HIGHEST]), max_size=12),
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(actions, st.sampled_from(["none", "lru", "lfu"]), st.sampled_from([1, 5, 16, None]), st.sampled_from([None, 4]))
def test_behaves_like_dictionaries(steps, eviction, max_rows, ttl):
    """Whatever is evicted: every key reads its own vector, or the default, and the counters add up."""
    limits = {"max_rows": max_rows, "eviction": eviction, "ttl_steps": ttl}
    table = make(SGD(1.0), 2, initializer=Constant(0.0), default=99.0, **limits)
    expected = {}
    for action, keys in steps:
        array = np.array(keys, np.int64)
        if action == "erase":
            table.erase(array)
        elif action == "train":
            train(table, array, -1.0)  # every occurrence adds 1
        present = set(table.keys().tolist())
        for key in keys if action == "train" else ():
            expected[key] = expected.get(key, 0) + 1
        before, expected = expected, {key: value for key, value in expected.items() if key in present}
        assert present == expected.keys() and adds_up(table)
        for key, value in zip(keys, table.weight_of(array)[:, 0].tolist(), strict=True):
            assert value == 99.0 if key not in expected else 0 < value <= before[key]
        if max_rows is not None:
            assert len(table) <= max_rows
    for block in table.blocks("t"):
        assert np.array_equal(block.states["meta.count"], block.weights[:, 0])


def test_grows_alike_where_addresses_cannot_be_reserved(monkeypatch):
    keys = np.random.default_rng(2).integers(LOWEST, HIGHEST, (40, 50))
    results = []
    for counted in (False, True):
        monkeypatch.setattr(memory, "_addresses_count", lambda counted=counted: counted)
        table = make(Adagrad(0.1, initial_accumulator=0.25), initializer=Normal(0, 1))
        for batch in keys:
            train(table, np.concatenate([batch, batch[:5]]))
        results.append(list(table.blocks("t")))
    for one, two in zip(*results, strict=True):
        assert np.array_equal(one.keys, two.keys) and np.array_equal(one.weights, two.weights)
        assert np.array_equal(one.states["sum"], two.states["sum"])


def test_a_new_optimizer_starts_with_fresh_state():
    table = make(Adagrad(0.1))
    train(table, [1, 2])
    table.set_optimizer(Adam(0.1))
    assert list(table.states) == ["first", "second"] and not any(state[:3].any() for state in table.states.values())
    train(table, [1, 3])
    assert len(table) == 3


def test_pickled_tables_go_on_where_they_were():
    table = make(Adam(0.1), min_count=2, max_rows=50)
    for step in range(6):
        train(table, np.arange(step, step + 30))
    copy = pickle.loads(pickle.dumps(table))
    assert copy.counters == table.counters and copy.step == table.step and len(copy) == len(table)
    for one in (table, copy):
        train(one, np.arange(40, 70))
    keys = np.arange(70)
    assert np.array_equal(copy.weight_of(keys), table.weight_of(keys)) and copy.counters == table.counters


def test_impossible_settings_are_errors():
    for settings_, message in (
        ({"min_count": 0}, "min_count is 0"),
        ({"probability": 1.5}, "probability is 1.5"),
        ({"max_rows": 0}, "max_rows is 0"),
        ({"eviction": "fifo"}, "eviction is 'fifo'"),
        ({"ttl_steps": 2.5}, "ttl_steps is 2.5"),
        ({"ttl_seconds": float("nan")}, "ttl_seconds is nan"),
        ({"default": float("inf")}, "default is inf"),
    ):
        with pytest.raises(ConfigError, match=message):
            DynamicConfig(**settings_)
    with pytest.raises(ConfigError, match=r"max_bytes is 100, one row alone needs [0-9,]+ bytes"):
        DynamicTable(TableConfig("t", "dynamic", 4, dynamic=DynamicConfig(max_bytes=100)), SGD(0.1))
