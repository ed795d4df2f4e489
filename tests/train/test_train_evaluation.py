"""`lanner evaluate` and `lanner train` as commands, and predictions in a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import typer
from train_datasets import random_rows, schema, write
from typer.testing import CliRunner

from lanner.cli.evaluate import evaluate
from lanner.cli.train import train
from lanner.data import Dataset
from lanner.errors import SchemaError
from lanner.train import Trainer, checkpoint
from lanner.train.evaluation import evaluate_checkpoint

Make = Callable[..., Dataset]

app = typer.Typer()
app.command("train")(train)
app.command("evaluate")(evaluate)


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    file = tmp_path / "recipe.yaml"
    file.write_text("model: {dim: 8, bottom: [16, 8], top: [16, 1]}\nbatch_size: 64\n")
    return str(file)


def test_train_then_evaluate(dataset: Make, tmp_path: Path, recipe: str) -> None:
    data, run, out = dataset(train=500, valid=100, test=129), tmp_path / "run", tmp_path / "scores.parquet"
    trained = CliRunner().invoke(app, ["train", recipe, f"data={data.path}", f"out={run}", "model.dim=4", "--json"])
    assert trained.exit_code == 0, trained.output
    result = json.loads(trained.stdout)
    assert set(result) == {"train", "valid", "test", "samples_per_second", "verdict", "healthy"}
    assert result["test"]["rows"] == 129
    assert result == json.loads((run / "result.json").read_text())
    assert checkpoint.read_recipe(checkpoint.resolve(run))["model"]["dim"] == 4

    command = ["evaluate", str(run), f"{data.path}/test", "--predictions", str(out), "--json", "--batch-size", "64"]
    evaluated = CliRunner().invoke(app, command)
    assert evaluated.exit_code == 0, evaluated.output
    for name in ("auc", "log_loss", "normalized_entropy", "calibration", "rows"):
        assert json.loads(evaluated.stdout)[name] == pytest.approx(result["test"][name], abs=1e-6)
    written = pq.read_table(out)
    assert written.column_names == ["row", "label", "prediction"]
    predictions = Trainer(checkpoint.load_model(run), quiet=True).predict(data.test)
    assert np.allclose(written["prediction"].to_numpy(), predictions, atol=1e-6)
    assert written["row"].to_pylist() == list(range(129))
    assert np.array_equal(written["label"].to_numpy(), data.test.slice(0, 129).labels[:, 0].numpy())


def test_a_useless_model_is_warned_about(dataset: Make, tmp_path: Path, recipe: str) -> None:
    data = dataset()
    done = CliRunner().invoke(app, ["train", recipe, f"data={data.path}", "dense_optimizer.name=SGD", "max_steps=1",
                                    "dense_optimizer.lr=1e30", "--json"])  # fmt: skip
    assert done.exit_code == 0
    assert json.loads(done.stdout)["healthy"] is False
    assert "learned nothing" in done.stderr or "training diverged" in done.stderr


def test_training_that_keeps_nothing_says_so(dataset: Make, tmp_path: Path, recipe: str) -> None:
    data = dataset(train=100, test=0)
    command = ["train", recipe, f"data={data.path}"]
    assert "no out=RUN is given" in CliRunner().invoke(app, command).stderr
    assert "no out=RUN is given" not in CliRunner().invoke(app, [*command, f"out={tmp_path / 'run'}"]).stderr


def test_one_class_is_not_a_failure(tmp_path: Path, recipe: str) -> None:
    of = schema()
    ones = {**random_rows(50, of, 1), "label": np.ones(50, np.uint8)}
    data = write(tmp_path / "data", of, train=random_rows(200, of), test=ones)
    done = CliRunner().invoke(app, ["train", recipe, f"data={data.path}", f"out={tmp_path / 'run'}", "--json"])
    assert done.exit_code == 0
    evaluated = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), f"{data.path}/test", "--json"])
    assert evaluated.exit_code == 0
    assert json.loads(evaluated.stdout)["auc"] is None
    assert "every label is 1" in evaluated.stderr


def test_another_schema_is_refused_by_its_field(dataset: Make, tmp_path: Path, recipe: str) -> None:
    data = dataset()
    CliRunner().invoke(app, ["train", recipe, f"data={data.path}", f"out={tmp_path / 'run'}"])
    other = write(tmp_path / "other", schema(dense=3), test=random_rows(10, schema(dense=3)))
    with pytest.raises(SchemaError, match="differ in dense: 2 entries != 3 entries"):
        evaluate_checkpoint(str(tmp_path / "run"), f"{other.path}/test")


def test_rows_without_labels_are_scored(dataset: Make, tmp_path: Path, recipe: str) -> None:
    data, run, out = dataset(), tmp_path / "run", tmp_path / "scores.parquet"
    CliRunner().invoke(app, ["train", recipe, f"data={data.path}", f"out={run}"])
    rows = random_rows(300, schema(), 1)
    del rows["label"]
    new = write(tmp_path / "new", schema(labels=()), test=rows)
    done = CliRunner().invoke(app, ["evaluate", str(run), f"{new.path}/test", "--predictions", str(out), "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["rows"], result["auc"], result["calibration"]) == (300, None, None)
    assert result["auc_reason"] == "no labels" and "no labels" in done.stderr
    ours = Trainer(checkpoint.load_model(run), quiet=True)
    assert pq.read_table(out).column_names == ["row", "prediction"]
    same = write(tmp_path / "same", schema(), test=random_rows(300, schema(), 1)).test
    assert np.array_equal(ours.predict(new.test), ours.predict(same))
    assert np.allclose(pq.read_table(out)["prediction"].to_numpy(), ours.predict(new.test), atol=1e-6)
    with pytest.raises(SchemaError, match="labels"):
        ours.fit(new.test)
