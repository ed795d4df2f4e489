"""Plans: what is refused, the YAML form, and that every row and column of a table lies somewhere once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lanner.embedding import TableConfig
from lanner.embedding.sharding import Placement, Plan
from lanner.embedding.sharding.placement import SMALL
from lanner.embedding.sharding.shards import held_by, shares_of
from lanner.errors import ConfigError

PLACEMENTS = {
    "whole": Placement("table", (2,)),
    "rows": Placement("row", (3, 0, 1)),
    "columns": Placement("column", (1, 2)),
    "both": Placement("two-level", ((0, 3), (2, 1))),
    "copied": Placement("data"),
}
TABLES = [TableConfig(name, rows, 8) for name, rows in zip(PLACEMENTS, (5, 7, 3, 9, 4), strict=True)]


@pytest.mark.parametrize(
    ("kind", "ranks", "message"),
    [
        ("diagonal", (0,), "kind is 'diagonal', expected one of data, table"),
        ("table", (0, 1), "exactly one"),
        ("row", (), "no ranks"),
        ("row", (0, -1), "whole numbers from 0"),
        ("column", (0, 1, 0), "rank 0 is given 2 times"),
        ("two-level", ((0, 1), (1, 2)), "rank 1 is given 2 times"),
        ("two-level", ((0, 1), (2,)), "unequal numbers of ranks"),
        ("two-level", (0, 1), "a list of ranks for each node"),
        ("row", ((0, 1),), "whole numbers from 0"),
    ],
)
def test_a_placement_says_what_is_wrong_with_it(kind: str, ranks: tuple, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Placement(kind, ranks)


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        (Placement("row", (0, 4)), "table 't': rank 4 is not in 0..3"),
        (Placement("data", (0, 1)), "table 't': kind 'data' copies it to all 4 ranks"),
    ],
)
def test_a_plan_names_the_table_and_the_rank_that_does_not_exist(placement: Placement, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Plan(4, {"t": placement})


def test_a_plan_must_fit_the_tables() -> None:
    plan = Plan(4, PLACEMENTS)
    plan.check(TABLES)
    with pytest.raises(ConfigError, match="no table 'whole'"):
        plan.check(TABLES[1:])
    with pytest.raises(ConfigError, match="table 'more' has no placement"):
        plan.check([*TABLES, TableConfig("more", 5, 8)])
    with pytest.raises(ConfigError, match="table 't': dim 7 does not divide into 2 equal blocks"):
        Plan(2, {"t": Placement("column", (0, 1))}).check([TableConfig("t", 5, 7)])


def test_a_plan_survives_yaml(tmp_path: Path) -> None:
    plan = Plan(4, PLACEMENTS, notes={"seconds": 0.25}, table_notes={"rows": {"bytes": [1, 2, 3, 0]}})
    plan.save(tmp_path / "plan.yaml")
    assert Plan.load(tmp_path / "plan.yaml") == plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid YAML"),
        ("[]", "expected a mapping"),
        ("world_size: 2\ntables: {}", "version is None, expected 1"),
        ("version: 1\nworld_size: none\ntables: {}", "world_size is 'none'"),
        ("version: 1\nworld_size: 2\ntables: {t: row}", "table 't': found 'row'"),
        ("version: 1\nworld_size: 2\ntables: {t: {kind: row, ranks: 3}}", "table 't': ranks are 3"),
        ("version: 1\nworld_size: 2\ntables: {t: {kind: rows}}", "table 't': placement: kind is 'rows'"),
        ("version: 1\nworld_size: 2\ntables: {t: {kind: table, ranks: [2]}}", "table 't': rank 2 is not in 0..1"),
    ],
)
def test_errors_in_a_file_name_the_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message) as raised:
        Plan.load(tmp_path / "plan.yaml")
    assert "plan.yaml" in str(raised.value)


def test_by_default_small_tables_are_copied_and_others_cut_by_rows() -> None:
    tables = [TableConfig("small", SMALL // 32, 8), TableConfig("large", SMALL // 32 + 1, 8)]
    plan = Plan.default(tables, 3)
    assert plan.tables == {"small": Placement("data"), "large": Placement("row", (0, 1, 2))}
    plan.check(tables)


def test_every_cell_of_a_table_lies_on_one_rank() -> None:
    plan = Plan(4, PLACEMENTS)
    for table in TABLES:
        found = np.zeros((table.rows, table.dim), int)
        for rank in range(4):
            if shard := held_by(rank, plan, TABLES).get(table.name):
                keys = shard.keys(np.arange(shard.rows))
                found[keys, shard.columns] += 1
                share, local = shares_of(table, keys, shard.shares)
                assert (share == shard.share).all()
                assert local.tolist() == list(range(shard.rows))
        assert (found == (4 if table.name == "copied" else 1)).all()
