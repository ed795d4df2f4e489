"""Dynamic tables through training and evaluation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from lanner.cli.main import app
from lanner.data import Dataset, Loader
from lanner.models import DLRM
from lanner.train import Trainer
from lanner.train.recipe import parse
from lanner.train.run import train

Make = Callable[..., Dataset]
RECIPE: dict[str, Any] = {
    "model": {"dim": 4, "bottom": [8, 4], "top": [8, 1]},
    "batch_size": 32,
    "epochs": 4,
    "embedding_optimizer": {"name": "RowWiseAdagrad", "lr": 0.1},
}


def keys(data: Dataset, split: str) -> dict[str, np.ndarray]:
    """The ids of a split by feature, read without the loader's shuffling."""
    whole = getattr(data, split)
    batch = next(iter(Loader(whole, whole.rows).epoch(0)))
    return dict(zip(batch.bags.names, batch.bags.values.numpy().reshape(len(batch.bags.names), -1), strict=True))


def limited(**dynamic: Any) -> dict[str, Any]:
    return {"tables": {"*": {"dynamic": dynamic}}}


def test_a_budget_and_a_threshold_from_the_recipe(dataset: Make) -> None:
    data = dataset(train=2000, valid=200, dynamic=True)
    limits = limited(max_rows=35, eviction="lfu", min_count=2)
    result = train(parse({**RECIPE, "data": data.path, "embedding": limits}), quiet=True)
    assert result["healthy"] and result["test"]["auc"] > 0.75
    for name, seen in keys(data, "test").items():
        found = result["dynamic_tables"][name]
        assert found["rows"] == found["inserted"] - found["evicted"] <= 35 and found["bytes"] > 35 * 4 * 4
        assert found["refused_admission"] > 0 and found["expired"] == found["erased"] == 0
        rare = sum(count for count in Counter(seen.tolist()).values() if count < 3)
        assert 0.7 * rare < result["test"]["unknown_keys"][name] < 2 * rare  # a tenth of the ids occur but once


def test_every_key_gets_a_row_and_every_other_reads_the_default(dataset: Make) -> None:
    data = dataset(train=500, dynamic=True)
    result = train(parse({**RECIPE, "data": data.path}), quiet=True)
    trained, tested = keys(data, "train"), keys(data, "test")
    for name, table in result["dynamic_tables"].items():
        assert table["rows"] == table["inserted"] == len(np.unique(trained[name]))
        unknown = np.count_nonzero(~np.isin(tested[name], trained[name]))
        assert result["test"]["unknown_keys"][name] == unknown > 0


@pytest.mark.parametrize("min_count", [2, 5])
def test_a_threshold_is_of_one_pass_whatever_the_number_of_epochs(dataset: Make, min_count: int) -> None:
    data = dataset(train=300, dynamic=True)
    result = train(parse({**RECIPE, "data": data.path, "embedding": limited(min_count=min_count)}), quiet=True)
    for name, seen in keys(data, "train").items():
        frequent = sum(count >= min_count for count in Counter(seen.tolist()).values())
        assert result["dynamic_tables"][name]["rows"] == frequent


def test_a_collection_alone_counts_until_it_is_told_that_a_pass_ends(dataset: Make) -> None:
    data = dataset(train=64, dynamic=True)
    embedding = DLRM(data.schema, **RECIPE["model"], embedding=limited(min_count=2)).embedding
    bags = next(iter(Loader(data.train, 64).epoch(0))).bags
    once = {name: sum(n == 1 for n in Counter(ids.tolist()).values()) for name, ids in keys(data, "train").items()}
    rows = {}
    for ends in (True, False, False):
        embedding(bags).sum().backward()
        rows = {name: len(table) for name, table in embedding.dynamic_tables.items()}
        if ends:
            embedding.end_pass()
            after_one = rows
    assert {name: rows[name] - after_one[name] for name in rows} == once


def test_records_and_the_command_show_the_tables(dataset: Make, tmp_path: Path) -> None:
    data, file = dataset(train=500, valid=100, dynamic=True), tmp_path / "recipe.yaml"
    file.write_text(parse({**RECIPE, "embedding": limited(max_rows=20)}).to_yaml())
    ran = CliRunner().invoke(app, ["train", str(file), f"data={data.path}", "--json"])
    assert ran.exit_code == 0, ran.output
    assert set(json.loads(ran.stdout)["dynamic_tables"]) == {"c0", "c1"}
    for shown in ("dynamic tables", "evicted", "test: keys without a row, read as the default: c0 "):
        assert shown in ran.stderr
    assert "expired" not in ran.stderr


def test_static_tables_are_not_spoken_of(dataset: Make) -> None:
    data = dataset()
    trainer = Trainer(DLRM(data.schema, **RECIPE["model"]), quiet=True)
    assert "dynamic_tables" not in trainer.fit(data.train) and "unknown_keys" not in trainer.evaluate(data.test)
