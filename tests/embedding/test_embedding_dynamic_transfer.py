"""Rows of dynamic tables going out and coming in: whole, changed ones, and while others train."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from dynamic_training import make, read, train

from lanner.embedding import Adagrad, Adam, Normal, Uniform
from lanner.embedding.dynamic import deletions, transfer
from lanner.embedding.store import Rows
from lanner.errors import DataError


def rows_by_key(table, since=None):
    """Everything that `blocks` gives, by key; a key that comes twice is an error."""
    found = {}
    for block in table.blocks("t", since):
        for at, key in enumerate(block.keys.tolist()):
            assert key not in found
            found[key] = (block.weights[at].tolist(), {n: s[at].tolist() for n, s in block.states.items()})
    return found


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(transfer, "_BLOCK", 1 << 10)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_a_table_filled_from_another_ones_rows_is_its_equal(dtype):
    one = make(Adam(0.1), dtype=dtype, initializer=Normal(0, 1), max_rows=300, eviction="lfu")
    keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 400)
    for step in range(5):
        one.step = step + 1
        one.rows_of("t", keys[step * 20 : step * 20 + 200], True)
    one.states["first"][1:] = 0.5
    two = make(Adam(0.1), dtype=dtype, initializer=Normal(0, 1), max_rows=300, eviction="lfu")
    for block in one.blocks("t"):
        two.place("t", block)
    assert rows_by_key(one) == rows_by_key(two) and len(two) == two.counters.inserted == len(one)
    for table in (one, two):
        table.step = 9
        table.rows_of("t", keys[-100:], True)
    assert set(one.keys().tolist()) == set(two.keys().tolist())


def test_base_and_deltas_make_the_whole():
    rng, table = np.random.default_rng(1), make(Adagrad(0.1), max_rows=120, eviction="lru", initializer=Uniform(-1, 1))
    copy = make(Adagrad(0.1), initializer=Uniform(-1, 1), default=7.0)
    base = 0
    for _ in range(6):
        for block in table.blocks("t", base or None):
            copy.place("t", block)
        copy.erase(table.deleted_since("t", base))
        assert rows_by_key(copy) == rows_by_key(table)
        base = table.step - 1
        for _ in range(4):
            train(table, rng.integers(0, 300, 40))
        table.erase(rng.integers(0, 300, 10))
    gone = np.setdiff1d(np.arange(300), table.keys())
    assert table.counters.evicted > 0 and (read(copy, np.setdiff1d(gone, copy.keys()))[0] == 7.0).all()


def test_only_rows_used_since_are_given():
    table = make()
    for keys in ([1, 2], [2, 3], [4]):
        train(table, keys)
    read(table, [1])
    assert set(rows_by_key(table, since=1)) == {2, 3, 4} and set(rows_by_key(table, since=3)) == set()
    table.place("t", Rows(np.array([1]), np.ones((1, 4), np.float32), {}))
    assert set(rows_by_key(table, since=3)) == {1}


def test_keys_that_came_back_are_not_deleted():
    table = make()
    train(table, [1, 2, 3])
    table.erase(np.array([1, 2]))
    assert table.deleted_since("t", 1).tolist() == [1, 2] and table.deleted_since("t", 2).tolist() == []
    train(table, [2])
    assert table.deleted_since("t", 1).tolist() == [1] and table.deleted_since("t", 0).tolist() == [1]


def test_deletions_that_are_forgotten_are_not_passed_over():
    log = deletions.Deletions("t", 100)
    for step in range(1, 6):
        log.add(step, np.arange(30) + 100 * step)
    assert log.nbytes <= 800 and len(log.since(3)) == 60
    with pytest.raises(DataError, match=r"table 't': .*after step 1 .* up to step 2 are forgotten"):
        log.since(1)


def test_rows_without_state_get_that_of_fresh_rows_and_leave_that_of_known_ones():
    table = make(Adagrad(0.1, initial_accumulator=0.5))
    train(table, [1])
    kept = table.states["sum"][1].clone()
    table.place("t", Rows(np.array([1, 2]), np.full((2, 4), 3.0, np.float32), {}))
    assert (table.weight_of(np.array([1, 2])) == 3.0).all()
    assert (table.states["sum"][1] == kept).all() and (table.states["sum"][2] == 0.5).all()
    block = next(table.blocks("t"))
    assert block.states["meta.count"].tolist() == [1, 1] and block.states["meta.used"].tolist() == [2, 2]


def test_rows_put_in_evict_no_other_rows_put_in():
    table = make(max_rows=10, eviction="lru")
    train(table, np.arange(10))
    keys = np.array([0, 1, 2, 3, 4, 20, 21, 22, 23, 24])
    table.place("t", Rows(keys, np.ones((10, 4), np.float32), {"meta.used": np.zeros(10, np.int64)}))
    assert set(table.keys().tolist()) == set(keys.tolist())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (Rows(np.array([1, 2]), np.zeros((2, 3), np.float32), {}), r"weights of 2 keys has shape \(2, 3\)"),
        (Rows(np.array([1]), np.zeros((1, 4), np.float32), {"sum": np.zeros((3, 4))}), "sum of 1 keys has shape"),
        (
            Rows(np.array([1]), np.zeros((1, 4), np.float32), {"first": np.zeros((1, 4))}),
            "no state 'first'; it has sum",
        ),
        (Rows(np.array([8, 9, 8]), np.zeros((3, 4), np.float32), {}), "key 8 comes twice"),
        (Rows(np.arange(4), np.zeros((4, 4), np.float32), {}), "4 rows are to be put in, there is room for 3"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_change_nothing(rows, message):
    table = make(Adagrad(0.1), max_rows=3, eviction="none")
    with pytest.raises(DataError, match=f"table 't': .*{message}"):
        table.place("t", rows)
    assert len(table) == 0


def test_dumps_during_inserts_and_evictions_are_whole():
    """Weights and every state of a row are written by the same step, so in each row given they must agree."""
    table = make(Adam(0.1), dim=2, max_rows=400, eviction="lru", initializer=Uniform(-1, 1))
    stop, errors = threading.Event(), []

    def trainer():
        rng = np.random.default_rng(3)
        try:
            while not stop.is_set():
                with table.lock:
                    rows = table.rows_of("t", rng.integers(0, 1000, 50), True)
                    rows = np.unique(rows[rows > 0])
                    table.weights[rows] = float(table.step)
                    for state in table.states.values():
                        state[rows] = float(table.step)
                    table.changed_rows(rows, table.step)
        except Exception as error:  # shown by the test itself
            errors.append(error)

    thread = threading.Thread(target=trainer)
    thread.start()
    try:
        for _ in range(100):
            copy, seen = make(Adam(0.1), dim=2), set()
            for block in table.blocks("t"):
                assert not seen & set(block.keys.tolist())
                seen |= set(block.keys.tolist())
                for name in ("first", "second", "meta.used"):
                    assert np.array_equal(block.states[name].reshape(len(block.keys), -1)[:, 0], block.weights[:, 0])
                copy.place("t", block)
            assert len(copy) == len(seen) and all(np.isfinite(b.weights).all() for b in copy.blocks("t"))
    finally:
        stop.set()
        thread.join()
    assert not errors and table.counters.evicted > 0 and table.step > 100
