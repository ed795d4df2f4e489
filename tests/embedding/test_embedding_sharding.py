"""Tables on several processes: outputs, gradients and updates are those of one process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from dense_optimizers import OPTIMIZERS, DenseTable
from processes import run
from sharded_training import DYNAMIC_KEYS, Outcome, Problem, tables_of, train

from lanner.data.batch import Bags
from lanner.embedding import (
    Adagrad,
    Adam,
    Backing,
    EmbeddingCollection,
    FeatureConfig,
    Optimizer,
    RowWiseAdagrad,
    TableConfig,
)
from lanner.embedding.sharding import Placement, Plan
from lanner.embedding.sharding.placement import KINDS

TABLES = [TableConfig("a", 7, 8), TableConfig("b", 30, 8), TableConfig("c", 5, 4), TableConfig("d", 2, 8)]
SUMS = [FeatureConfig(name, name[0]) for name in ("a", "b", "c", "d", "b2")]
ALL = [
    *(FeatureConfig(f"{pooling}_{name}", name, pooling) for pooling, name in zip(("mean", "max"), "ab", strict=True)),
    *(FeatureConfig(f"{pooling}_{name}", name, pooling) for pooling, name in zip(("sum", "mean"), "cd", strict=True)),
    FeatureConfig("max_a", "a", "max"),
    FeatureConfig("none_b", "b", "none"),
]


def placements(kind: str, ranks: int) -> Placement:
    everyone = tuple(range(ranks))
    if kind == "two-level":
        return Placement(kind, (everyone[: ranks // 2], everyone[ranks // 2 :]))
    return Placement(kind, {"data": (), "table": (ranks - 1,)}.get(kind, everyone))


def plan(ranks: int, *kinds: str) -> Plan:
    """One kind for each table, or one for all."""
    given = dict(zip((table.name for table in TABLES), kinds * len(TABLES), strict=False))
    return Plan(ranks, {name: placements(kind, ranks) for name, kind in given.items()})


def together(parts: list[Outcome], tables: list[TableConfig]) -> Outcome:
    """What all ranks have: outputs one after another, rows and columns of tables put in their places."""
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name.startswith("output")}
    for table in tables:
        for part in parts:
            if f"table {table.name} keys" in part:
                _put(whole, part, table)
    return whole


def _put(whole: Outcome, part: Outcome, table: TableConfig) -> None:
    prefix = f"table {table.name} "
    keys, columns = part[f"{prefix}keys"], part[f"columns of {table.name}"]
    for name, values in part.items():
        if not name.startswith(prefix) or name.endswith("keys"):
            continue
        rows = DYNAMIC_KEYS if table.rows == "dynamic" else table.rows
        shape = (rows, table.dim) if values.ndim == 2 else (rows,)
        into = whole.setdefault(name, np.full(shape, np.nan, np.float32))
        into[np.ix_(keys, columns) if values.ndim == 2 else keys] = values


def train_all(rank: int, cases: list[tuple[Problem, Plan]]) -> list[Outcome]:
    return [train(rank, *case) for case in cases]


def check(ranks: int, cases: list[tuple[Problem, Plan]], tolerance: float = 1e-6) -> None:
    """Train every case on so many ranks, and compare with this process alone."""
    for case, parts in zip(cases, zip(*run(train_all, ranks, cases), strict=True), strict=True):
        tables = case[0].tables
        found, expected = together(list(parts), tables), together([train(0, case[0])], tables)
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_allclose(
                found[name], values, rtol=tolerance, atol=tolerance, err_msg=f"{name} of {case[0].optimizer}, {case[1]}"
            )


POOLED = Problem(TABLES, SUMS)
DYNAMIC = [replace(table, rows="dynamic") for table in TABLES]
EVERYTHING = Problem(TABLES, ALL, Adagrad(0.1), weighted=True, options={"output": "each"})


def cases(ranks: int) -> list[tuple[Problem, Plan]]:
    mixed = plan(ranks, "row", "column", "data", "two-level")
    return [
        *((EVERYTHING, plan(ranks, kind)) for kind in KINDS),
        (EVERYTHING, mixed),
        (POOLED, mixed),
        (replace(EVERYTHING, tables=DYNAMIC, ahead=True), plan(ranks, "row", "column", "two-level", "table")),
        (replace(POOLED, longest=None, optimizer=Adam(0.01), ahead=True), mixed),
        (replace(POOLED, optimizer=Adam(0.01), permuted=True, steps=3), mixed),
        (replace(POOLED, optimizer=RowWiseAdagrad(0.1), ahead=True), mixed),
        (replace(POOLED, optimizer=RowWiseAdagrad(0.1)), plan(ranks, "two-level", "column", "row", "column")),
        (replace(EVERYTHING, deferred=2), mixed),
    ]


def whole_rows(ranks: int) -> list[tuple[Problem, Plan]]:
    """Every optimizer, clipping and decaying, on tables of which each rank has some columns."""
    by_columns, mixed = plan(ranks, "column"), plan(ranks, "column", "row", "two-level", "column")
    clipped = [*TABLES[:2], replace(TABLES[2], optimizer=Adam(0.01, clip_norm=0.5)), TABLES[3]]
    every = [replace(optimizer, clip_norm=0.5, weight_decay=0.1) for optimizer in OPTIMIZERS]
    return [
        *((replace(POOLED, optimizer=optimizer, schedule=True), by_columns) for optimizer in every),
        (replace(POOLED, optimizer=RowWiseAdagrad(0.1, weight_decay=0.1)), mixed),
        (replace(POOLED, optimizer=RowWiseAdagrad(0.1, clip_norm=0.5), deferred=2), mixed),
        (replace(POOLED, tables=clipped), by_columns),
    ]


def test_two_processes_train_as_one() -> None:
    check(2, cases(2))


def test_clipping_and_decay_see_whole_rows_of_tables_cut_by_columns() -> None:
    check(2, whole_rows(2))


REPEATED = torch.tensor([3, 1, 3, 3, 7, 3])


ORDERS = ([0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2, 4])
T = TableConfig("t", 10, 16)


def gradients() -> torch.Tensor:
    return torch.randn(6, 16, generator=torch.Generator().manual_seed(1))


def train_repeated(rank: int, cases: list[tuple[Optimizer, str, list[int]]]) -> list[Outcome]:
    """The table after three steps, in which each rank has its half of the samples in this order."""
    outcomes = []
    for optimizer, kind, order in cases:
        model = EmbeddingCollection([T], [FeatureConfig("f", "t")], optimizer, plan=Plan(2, {"t": placements(kind, 2)}))
        own = order[3 * rank : 3 * rank + 3]
        for _ in range(3):
            model(Bags(("f",), REPEATED[own])).backward(2 * gradients()[own])  # the mean over the ranks is taken
        outcomes.append(tables_of(model))
    return outcomes


def test_gradients_of_equal_ids_on_different_ranks_are_summed_before_the_step() -> None:
    """Id 3 occurs 4 times among 6 (pytorch/FBGEMM#1545)."""
    cases = [(o, kind, order) for o in OPTIMIZERS for kind in ("row", "column", "data") for order in ORDERS]
    alone = EmbeddingCollection([T], [FeatureConfig("f", "t")]).weight("t").numpy()
    summed = np.zeros((10, 16))
    np.add.at(summed, REPEATED.numpy(), gradients().double().numpy())
    for case, parts in zip(cases, zip(*run(train_repeated, 2, cases), strict=True), strict=True):
        dense, found = DenseTable(alone, case[0]), Outcome()
        for _ in range(3):
            dense.step(summed, np.isin(np.arange(10), REPEATED))
        for part in parts:
            _put(found, part, T)
        np.testing.assert_allclose(found["table t weights"], dense.weight, rtol=0, atol=1e-6, err_msg=str(case))


@pytest.mark.slow
def test_tables_on_disk_train_on_two_processes() -> None:
    options = {"backing": Backing("100 kB", tables=("a", "b", "c"))}
    static = [(case, plan) for case, plan in cases(2) if case.tables is not DYNAMIC]
    check(2, [(replace(case, options=case.options | options), plan) for case, plan in static])


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_fifty_steps_stay_those_of_one_process(ranks: int) -> None:
    plans = [plan(ranks, kind) for kind in KINDS] + [plan(ranks, "row", "column", "data", "two-level")]
    check(ranks, [(replace(EVERYTHING, steps=50, ahead=True), each) for each in plans], tolerance=1e-5)


@pytest.mark.slow
def test_four_processes_train_as_one() -> None:
    check(4, cases(4))
    check(3, [(EVERYTHING, plan(3, "row", "table", "data", "row"))])
