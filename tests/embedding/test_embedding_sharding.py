"""Tables on several processes: outputs, gradients and updates are those of one process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from processes import run
from sharded_training import Outcome, Problem, train

from lanner.embedding import (
    Adagrad,
    Adam,
    Backing,
    FeatureConfig,
    RowWiseAdagrad,
    TableConfig,
)
from lanner.embedding.sharding import Placement, Plan

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


def together(parts: list[Outcome]) -> Outcome:
    """What all ranks have: outputs one after another, rows and columns of tables put in their places."""
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name.startswith("output")}
    for table in TABLES:
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
        shape = (table.rows, table.dim) if values.ndim == 2 else (table.rows,)
        into = whole.setdefault(name, np.full(shape, np.nan, np.float32))
        into[np.ix_(keys, columns) if values.ndim == 2 else keys] = values


def train_all(rank: int, cases: list[tuple[Problem, Plan]]) -> list[Outcome]:
    return [train(rank, *case) for case in cases]


def check(ranks: int, cases: list[tuple[Problem, Plan]]) -> None:
    """Train every case on so many ranks, and compare with this process alone."""
    for case, parts in zip(cases, zip(*run(train_all, ranks, cases), strict=True), strict=True):
        found, expected = together(list(parts)), together([train(0, case[0])])
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_allclose(
                found[name], values, rtol=1e-6, atol=1e-6, err_msg=f"{name} of {case[0].optimizer}, {case[1]}"
            )


POOLED = Problem(TABLES, SUMS)
EVERYTHING = Problem(TABLES, ALL, Adagrad(0.1), weighted=True, options={"output": "each"})


def cases(ranks: int) -> list[tuple[Problem, Plan]]:
    kinds = ("row", "table", "column", "data", "two-level")
    mixed = plan(ranks, "row", "column", "data", "two-level")
    return [
        *((EVERYTHING, plan(ranks, kind)) for kind in kinds),
        (EVERYTHING, mixed),
        (POOLED, mixed),
        (replace(POOLED, longest=None, optimizer=Adam(0.01), ahead=True), mixed),
        (replace(POOLED, optimizer=Adam(0.01), permuted=True, steps=3), mixed),
        (replace(POOLED, optimizer=RowWiseAdagrad(0.1), ahead=True), mixed),
        (replace(POOLED, optimizer=RowWiseAdagrad(0.1)), plan(ranks, "two-level", "column", "row", "column")),
        (replace(EVERYTHING, deferred=2), mixed),
    ]


def test_two_processes_train_as_one() -> None:
    check(2, cases(2))


@pytest.mark.slow
def test_tables_on_disk_train_on_two_processes() -> None:
    options = {"backing": Backing("100 kB", tables=("a", "b", "c"))}
    check(2, [(replace(case, options=case.options | options), plan) for case, plan in cases(2)])


@pytest.mark.slow
def test_four_processes_train_as_one() -> None:
    check(4, cases(4))
    check(3, [(EVERYTHING, plan(3, "row", "table", "data", "row"))])
