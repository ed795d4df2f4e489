"""`BackedTable` against arrays in memory: any order of holds, steps, evaluations and rows put in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from lanner.embedding import SGD, Adagrad, Adam, TableConfig
from lanner.embedding.backed import BackedTable
from lanner.embedding.backed.holds import Hold
from lanner.embedding.joint import JointTable
from lanner.embedding.store import Rows
from lanner.errors import ConfigError

ROWS, DIM, MOST = 400, 3, 30  # MOST ids are asked for at once
Ids = st.lists(st.integers(0, ROWS - 1) | st.integers(0, 20), max_size=MOST)


class Against(RuleBasedStateMachine):
    """`model` has all rows by number; `store` some in memory, which is enough for two batches or a few more."""

    @initialize(spare=st.integers(0, 3))
    def begin(self, spare: int) -> None:
        config = TableConfig("t", ROWS, DIM)
        self.store = BackedTable(config, Adam(), 5, 5500 + 2000 * spare)
        self.model = next(JointTable([config], Adam(), 5).blocks("t"))
        self.coming: list[tuple[Hold, np.ndarray]] = []
        self.steps = 0

    @rule(ids=Ids)
    def fetch_ahead(self, ids: list[int]) -> None:
        rows = np.array(ids, np.int64)
        self.coming.append((self.store.hold(rows, True), rows))

    @rule(which=st.integers(0, 5))
    def take_a_step(self, which: int) -> None:
        """Mostly with the batch that was asked for first."""
        if self.coming:
            hold, rows = self.coming.pop(which if which < len(self.coming) and which > 3 else 0)
            at = hold.rows()
            self.compare(at, rows)
            self.steps += 1
            for kept in (self.model.weights, *self.model.states.values()):
                kept[rows] = kept[rows] * 2 + self.steps
            for kept in (self.store.weights.numpy(), *(state.numpy() for state in self.store.states.values())):
                kept[at] = kept[at] * 2 + self.steps
            self.store.changed_rows(at, self.steps)
            hold.release()

    @rule()
    def forget_a_batch(self) -> None:
        if self.coming:
            self.coming.pop()

    @rule(ids=Ids)
    def evaluate(self, ids: list[int]) -> None:
        rows = np.array(ids, np.int64)
        hold = self.store.hold(rows, False)
        self.compare(hold.rows(), rows)

    @rule(ids=st.sets(st.integers(0, ROWS - 1)), with_state=st.booleans())
    def put_in(self, ids: set[int], with_state: bool) -> None:
        keys = np.array(list(ids), np.int64)
        values = np.random.default_rng(len(ids)).random((len(ids), DIM), np.float32)
        self.model.weights[keys] = values
        if with_state:
            self.model.states["first"][keys] = -values
        self.store.place("t", Rows(keys, values, {"first": -values} if with_state else {}))

    @rule()
    def look_through_all_rows(self) -> None:
        blocks = list(self.store.blocks("t"))
        assert np.array_equal(np.concatenate([block.keys for block in blocks]), np.arange(ROWS))
        assert np.array_equal(np.concatenate([block.weights for block in blocks]), self.model.weights)
        for name, state in self.model.states.items():
            assert np.array_equal(np.concatenate([block.states[name] for block in blocks]), state)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.look_through_all_rows()

    def compare(self, at: np.ndarray, rows: np.ndarray) -> None:
        assert np.array_equal(self.store.weights.numpy()[at], self.model.weights[rows])
        for name, state in self.model.states.items():
            assert np.array_equal(self.store.states[name].numpy()[at], state[rows])


TestAgainstArrays = Against.TestCase
TestAgainstArrays.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_an_optimizer_is_not_changed_under_rows_that_are_held(tmp_path):
    table = BackedTable(TableConfig("t", 500, 8), Adagrad(0.1), 0, 20_000, str(tmp_path))
    hold = table.hold(np.arange(9), True)
    hold.rows()
    with pytest.raises(ConfigError, match="table 't': 9 rows are held for batches that are prepared"):
        table.set_optimizer(SGD(0.1))
    hold.release()
    table.set_optimizer(SGD(0.1))


def test_a_directory_that_is_gone_is_an_error_of_the_table(tmp_path):
    with pytest.raises(ConfigError, match=r"table 't': its file of rows in .*gone cannot be made"):
        BackedTable(TableConfig("t", 500, 8), Adagrad(0.1), 0, 20_000, str(tmp_path / "gone"))
