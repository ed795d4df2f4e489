"""The recipe's section `embedding` through training and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lanner.data import Dataset
from lanner.embedding import SGD, Adam, Constant, DynamicConfig
from lanner.errors import ConfigError
from lanner.models import DLRM
from lanner.train import Trainer, checkpoint
from lanner.train.recipe import load, parse
from lanner.train.run import train

Make = Callable[..., Dataset]
SMALL: dict[str, Any] = {"dim": 4, "bottom": [8, 4], "top": [8, 1]}
TABLES: dict[str, Any] = {
    "c0": {"optimizer": {"name": "SGD", "lr": 0.5}},
    "*": {"initializer": {"name": "Constant", "value": 0.25}},
}


def test_overrides_reach_single_tables(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text("embedding:\n  tables:\n    '*': {dynamic: {min_count: 2}}\n")
    changes = ["embedding.tables.*.dynamic.max_rows=500", "embedding.tables.c1.optimizer={name: Adam, lr: 0.001}"]
    recipe = load(file, changes)
    assert recipe.embedding.tables["*"].dynamic == DynamicConfig(min_count=2, max_rows=500)
    assert recipe.embedding.tables["c1"].optimizer == Adam(0.001)
    file.write_text(recipe.to_yaml())
    assert load(file) == recipe
    with pytest.raises(ConfigError, match=r"recipe.yaml: embedding.tables.\*.dtype: .*'int8'"):
        load(file, ["embedding.tables.*.dtype=int8"])


def test_the_tables_of_a_checkpoint_are_those_of_the_run(dataset: Make, tmp_path: Path) -> None:
    values = {"data": dataset().path, "out": str(tmp_path / "run"), "model": SMALL, "batch_size": 64}
    train(parse({**values, "embedding": {"tables": TABLES}, "embedding_optimizer": {"name": "Adam"}}), quiet=True)
    model = checkpoint.load_model(tmp_path / "run")
    first, second = model.embedding.tables
    assert (first.optimizer, first.initializer) == (SGD(0.5), Constant(0.25))
    assert (second.optimizer, second.initializer) == (None, Constant(0.25))
    trainer = Trainer.load(tmp_path / "run")
    assert trainer.model.embedding.table_optimizer("c0") == SGD(0.5)
    assert trainer.model.embedding.table_optimizer("c1") == Adam()
    with pytest.raises(ConfigError, match=r"embedding\.tables\.c0: None, but .* was trained with .*'SGD'"):
        train(parse({**values, "embedding_optimizer": {"name": "Adam"}, "resume": True, "epochs": 2}), quiet=True)


def test_a_plan_is_a_choice_of_the_run(dataset: Make, tmp_path: Path) -> None:
    plan = {"version": 1, "world_size": 1, "tables": {name: {"kind": "data"} for name in ("c0", "c1")}}
    values = {"data": dataset().path, "out": str(tmp_path / "run"), "model": SMALL, "embedding": {"plan": plan}}
    train(parse(values), quiet=True)
    assert load(tmp_path / "run" / "recipe.yaml").embedding.plan == plan
    kept = yaml.safe_load((Path(checkpoint.resolve(tmp_path / "run")) / "recipe.yaml").read_text())
    assert kept["embedding"] == {"tables": {}}


def test_recipe_and_python_give_the_same_tables(dataset: Make) -> None:
    data = dataset()
    values = {"data": data.path, "model": SMALL, "batch_size": 64, "embedding": {"tables": TABLES}}
    expected = train(parse(values), quiet=True)["test"]
    trainer = Trainer(DLRM(data.schema, **SMALL, embedding={"tables": TABLES}), batch_size=64, quiet=True)
    trainer.fit(data.train, data.valid)
    assert trainer.evaluate(data.test) == expected


def test_the_model_has_no_section_embedding() -> None:
    with pytest.raises(ConfigError, match=r"model: `embedding` is a section of the recipe"):
        parse({"model": {"embedding": {}}})


def test_a_table_that_is_not_there_is_named(dataset: Make) -> None:
    values = {"data": dataset().path, "model": SMALL, "embedding": {"tables": {"c7": {}}}}
    with pytest.raises(ConfigError, match=r"there is no table 'c7'; there are c0, c1"):
        train(parse(values), quiet=True)
