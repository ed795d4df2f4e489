"""Recipes: YAML, overrides, errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanner.embedding.optimizers import SGD, Adam, RowWiseAdagrad
from lanner.errors import ConfigError
from lanner.train.recipe import load, parse

YAML = """
model: {name: dlrm, dim: 64, bottom: [512, 256, 64]}
embedding_optimizer: {name: SGD, lr: 1.5}
schedule: {warmup_steps: 10}
prep: {min_count: 2}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "recipe.yaml"
    file.write_text(YAML)
    return file


def test_file_defaults_and_overrides(path: Path) -> None:
    changes = "data=criteo out=runs/1 model.dim=16 model.bottom=[32,16] schedule.decay_start=99 seed=7"
    dense = "dense_optimizer.name=Adam dense_optimizer.lr=1e-3 early_stopping=null"
    recipe = load(path, [*changes.split(), *dense.split()])
    assert (recipe.data, recipe.out, recipe.seed, recipe.batch_size) == ("criteo", "runs/1", 7, 4096)
    assert recipe.model.hyperparameters == {"dim": 16, "bottom": [32, 16]}
    assert recipe.embedding_optimizer == SGD(1.5)
    assert recipe.dense_optimizer == Adam(0.001)
    assert (recipe.schedule.warmup_steps, recipe.schedule.decay_start) == (10, 99)
    assert recipe.prep == {"min_count": 2}


def test_yaml_round_trip(path: Path, tmp_path: Path) -> None:
    recipe = load(path, ["epochs=3", "embedding_optimizer.name=RowWiseAdagrad"])
    (tmp_path / "again.yaml").write_text(recipe.to_yaml())
    assert load(tmp_path / "again.yaml") == recipe
    assert recipe.embedding_optimizer == RowWiseAdagrad(1.5)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("batch_sice=3", r"batch_sice: no such key; the keys here are batch_size"),
        ("batch_size=0", r"batch_size: .*greater than or equal to 1 \(got 0\)"),
        ("schedule.warmup=3", r"schedule.warmup: no such key"),
        ("embedding_optimizer.name=Lion", r"optimizer 'Lion' is not known"),
        ("embedding_optimizer.lr=-1", r"lr is -1"),
        ("embedding_optimizer.momentum=1", r"momentum"),
        ("precision=fp8", r"precision: .*fp8"),
        ("seed", r"'seed': expected key=value"),
        ("seed.x=1", r"'seed' is not a section"),
        ("data=[1", r"not a valid YAML value"),
    ],
)
def test_mistakes_are_named(path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(path, ["seed=1", override])


def test_a_dense_optimizer_has_no_rows() -> None:
    with pytest.raises(ConfigError, match="dense_optimizer"):
        parse({"dense_optimizer": {"name": "RowWiseAdagrad"}})


def test_files_that_are_no_recipes(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- 1\n")
    (tmp_path / "broken.yaml").write_text("a: [\n")
    with pytest.raises(ConfigError, match=r"list.yaml: expected a mapping"):
        load(tmp_path / "list.yaml")
    with pytest.raises(ConfigError, match=r"broken.yaml: not valid YAML"):
        load(tmp_path / "broken.yaml")
    (tmp_path / "empty.yaml").write_text("")
    assert load(tmp_path / "empty.yaml") == parse({})


@pytest.mark.parametrize("seed", [-1, 1 << 63, 10**30])
def test_a_seed_that_no_generator_takes_is_refused(seed: int) -> None:
    with pytest.raises(ConfigError, match=rf"seed: .*got {seed}"):
        parse({"seed": seed})
    assert parse({"seed": (1 << 63) - 1}).seed == (1 << 63) - 1
