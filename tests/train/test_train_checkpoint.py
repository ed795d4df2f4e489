"""Checkpoints: exact resume, kill -9, signals, half-written directories."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lanner.data import Dataset
from lanner.embedding.optimizers import SGD, Adagrad, Adam, RowWiseAdagrad
from lanner.errors import ConfigError, DataError
from lanner.models import DLRM
from lanner.train import Trainer, checkpoint
from lanner.train.recipe import Recipe, parse
from lanner.train.run import train
from lanner.train.run_directory import RunDirectory

Make = Callable[..., Dataset]
SMALL: dict[str, Any] = {"dim": 4, "bottom": [8, 4], "top": [8, 1], "dropout": 0.2, "batch_norm": True}


def recipe(data: Dataset, out: Path, **options: Any) -> dict[str, Any]:
    schedule = {"warmup_steps": 30, "decay_start": 40, "decay_steps": 100}
    base = {"data": data.path, "out": str(out), "model": SMALL, "batch_size": 32, "epochs": 3, "schedule": schedule}
    return {**base, "log_every": 1, **options}


def losses(run: Path) -> dict[int, float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {record["step"]: record["loss"] for record in records if record["kind"] == "train"}


def child(values: dict[str, Any], **options: Any) -> subprocess.Popen[str]:
    """`lanner train` of a recipe in a process of its own."""
    file = Path(f"{values['out']}.yaml")
    file.write_text(Recipe(**values).to_yaml())
    code = "import sys, typer; from lanner.cli.train import train; sys.argv[0] = 'lanner'; typer.run(train)"
    return subprocess.Popen([sys.executable, "-c", code, str(file), "--json"], text=True, **options)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, "the run ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(
    "optimizer", [SGD(0.1), Adagrad(0.05), RowWiseAdagrad(0.05), Adam(0.01), Adam(0.01, mode="global")]
)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_resume_continues_exactly(dataset: Make, tmp_path: Path, optimizer: Any, precision: str) -> None:
    data = dataset(train=640)
    dense = optimizer if not isinstance(optimizer, RowWiseAdagrad) else Adam(0.01)
    options = {"embedding_optimizer": optimizer, "dense_optimizer": dense, "precision": precision}
    whole = train(parse(recipe(data, tmp_path / "whole", **options)), quiet=True)
    cut = recipe(data, tmp_path / "cut", **options)
    train(parse({**cut, "max_steps": 27}), quiet=True)  # in the middle of the second epoch
    resumed = train(parse({**cut, "resume": True}), quiet=True)
    assert losses(tmp_path / "cut") == pytest.approx(losses(tmp_path / "whole"), abs=1e-6)
    for part, metric in (("train", "epoch_loss"), ("test", "log_loss")):
        assert resumed[part][metric] == pytest.approx(whole[part][metric], abs=1e-6)


def test_kill_9_in_mid_epoch(dataset: Make, tmp_path: Path) -> None:
    data = dataset(train=6400, valid=100)
    whole = train(parse(recipe(data, tmp_path / "whole", shuffle_window=900)), quiet=True)
    values = recipe(data, tmp_path / "killed", resume=True, checkpoint_every=20, shuffle_window=900)
    process = child(values)
    try:
        wait_for(lambda: len(RunDirectory(tmp_path / "killed").steps()) > 0, process)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    step = RunDirectory(tmp_path / "killed").steps()[-1]
    assert 0 < step < 600
    resumed = train(parse(values), quiet=True)
    assert resumed["valid"] == pytest.approx(whole["valid"], abs=1e-6)
    assert resumed["train"]["best_step"] == whole["train"]["best_step"]
    assert losses(tmp_path / "killed") == pytest.approx(losses(tmp_path / "whole"), abs=1e-6)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_usable_checkpoint(dataset: Make, tmp_path: Path, number: int) -> None:
    data = dataset(train=6400)
    process = child(recipe(data, tmp_path / "run", epochs=500), stderr=subprocess.PIPE)
    wait_for(lambda: records_of(tmp_path / "run") > 3, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "resume=true" in errors and "Traceback" not in errors
    step = RunDirectory(tmp_path / "run").steps()[-1]
    assert step >= len(losses(tmp_path / "run")) > 3
    again = train(parse(recipe(data, tmp_path / "run", resume=True, max_steps=step + 5)), quiet=True)
    assert again["train"]["steps"] == step + 5


def records_of(run: Path) -> int:
    file = run / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_the_newest_and_the_best_are_kept(dataset: Make, tmp_path: Path) -> None:
    data = dataset(train=640, valid=200)
    options = {"checkpoint_every": 5, "keep_checkpoints": 3, "embedding_optimizer": Adam(0.3), "epochs": 6}
    result = train(parse(recipe(data, tmp_path / "run", **options, schedule={})), quiet=True)
    run, best = RunDirectory(tmp_path / "run"), result["train"]["best_step"]
    assert run.steps() == sorted({best, 110, 115, 120})
    assert run.best() == checkpoint.resolve(tmp_path / "run") == run.checkpoint(best)
    assert run.last() == run.checkpoint(120)
    assert (tmp_path / "run" / "last").read_text() == "120\n"


def test_half_written_checkpoints_are_ignored(dataset: Make, tmp_path: Path) -> None:
    data = dataset()
    values = recipe(data, tmp_path / "run", epochs=1)
    train(parse(values), quiet=True)
    run = RunDirectory(tmp_path / "run")
    (tmp_path / "run/checkpoints/900").mkdir()
    (tmp_path / "run/checkpoints/900/dense.safetensors").write_bytes(b"half")
    assert run.last() == run.checkpoint(19)
    with pytest.raises(DataError, match=r"900: .*no manifest"):
        checkpoint.open_checkpoint(run.checkpoint(900))
    (tmp_path / "run/checkpoints/19/dense.safetensors").write_bytes(b"short")
    with pytest.raises(DataError, match=r"dense.safetensors: 5 bytes"):
        checkpoint.load_model(tmp_path / "run")


def test_a_loaded_model_predicts_the_same(dataset: Make, tmp_path: Path) -> None:
    data = dataset()
    ours = Trainer(DLRM(data.schema, **SMALL), batch_size=32, quiet=True)
    ours.fit(data.train)
    ours.save(tmp_path / "saved")
    model = checkpoint.load_model(tmp_path / "saved")
    assert not model.training
    assert np.array_equal(Trainer(model, quiet=True).predict(data.test), ours.predict(data.test))
    names = {path.name for path in (tmp_path / "saved").iterdir()}
    files = {"dense.safetensors", "dense_optimizer.safetensors", "schema.yaml", "recipe.yaml", "trainer.json"}
    assert names == {*files, "tables", "manifest.json"}


def test_a_run_is_loaded_with_its_settings_and_vocabularies(dataset: Make, tmp_path: Path) -> None:
    data = dataset(valid=100)
    values = recipe(data, tmp_path / "run", epochs=1)
    result = train(parse(values), quiet=True)
    loaded = Trainer.load(tmp_path / "run", quiet=True)
    assert loaded.evaluate(data.valid) == result["valid"]
    assert (loaded.settings.batch_size, loaded.settings.epochs, loaded.run) == (32, 1, None)
    assert loaded.recipe() == checkpoint.read_recipe(checkpoint.resolve(tmp_path / "run"))
    loaded.save(tmp_path / "again")
    assert np.array_equal(Trainer.load(tmp_path / "again", quiet=True).predict(data.test), loaded.predict(data.test))
    with pytest.raises(DataError, match="no such directory"):
        Trainer.load(tmp_path / "nowhere")


def test_every_id_of_the_data_is_in_the_saved_table(dataset: Make, tmp_path: Path) -> None:
    data = dataset(train=1003, rows=(1003,))  # the table's rows are the ids of the data
    ours = Trainer(DLRM(data.schema, **SMALL), batch_size=100, quiet=True)
    ours.fit(data.train)
    ours.save(tmp_path / "saved")
    keys = np.fromfile(tmp_path / "saved" / "tables" / "c0" / "key", "<i8")
    assert set(data.train.slice(0, 1003).bags.values.tolist()) <= set(keys.tolist())
    vectors = np.fromfile(tmp_path / "saved" / "tables" / "c0" / "emb_vector", "<f4").reshape(len(keys), 4)
    assert torch.equal(torch.from_numpy(vectors), ours.model.embedding.weight("c0")[keys])


def test_resume_refuses_what_must_not_change(dataset: Make, tmp_path: Path) -> None:
    data = dataset()
    values = recipe(data, tmp_path / "run", epochs=1)
    train(parse(values), quiet=True)
    with pytest.raises(ConfigError, match=r"batch_size: 64, but .* was trained with 32"):
        train(parse({**values, "resume": True, "batch_size": 64}), quiet=True)
    with pytest.raises(ConfigError, match=r"shuffle_window: 9, but .* was trained with None"):
        train(parse({**values, "resume": True, "shuffle_window": 9}), quiet=True)
    with pytest.raises(DataError, match=r"top.*' has shape \(8.*, expected \(9"):
        train(parse({**values, "resume": True, "model": {**SMALL, "top": [9, 1]}}), quiet=True)
    with pytest.raises(DataError, match="neither a checkpoint nor a run"):
        Trainer(DLRM(data.schema)).resume(tmp_path)


def test_the_training_metrics_after_a_resume_are_of_the_same_rows(dataset: Make, tmp_path: Path) -> None:
    data = dataset(train=640)
    values = recipe(data, tmp_path / "run", epochs=1)
    train(parse({**values, "max_steps": 15}), quiet=True)
    row = train(parse({**values, "resume": True}), quiet=True)["train"]
    assert row["rows"] == 640 - 15 * 32
    assert "since step 15" in row["rows_reason"]
    rest = {step: loss for step, loss in losses(tmp_path / "run").items() if step > 15}
    assert row["log_loss"] == pytest.approx(sum(rest.values()) / len(rest), abs=1e-6)
    assert row["epoch_loss"] != pytest.approx(row["log_loss"], abs=1e-4)


def test_resuming_a_finished_run_leaves_it_as_it_is(
    dataset: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = dataset(valid=100)
    values = recipe(data, tmp_path / "run", epochs=1)
    first = train(parse(values), quiet=True)
    before = {name: (tmp_path / "run" / name).read_bytes() for name in ("result.json", "recipe.yaml", "metrics.jsonl")}
    assert train(parse({**values, "resume": True})) == first
    assert f"already finished at step {first['train']['steps']}; raise epochs or max_steps" in capsys.readouterr().err
    assert before == {name: (tmp_path / "run" / name).read_bytes() for name in before}
    (tmp_path / "run" / "result.json").unlink()  # killed before it was written
    assert train(parse({**values, "resume": True}), quiet=True)["test"] == first["test"]
    assert (tmp_path / "run" / "result.json").is_file()


def test_a_finished_run_can_be_prolonged(dataset: Make, tmp_path: Path) -> None:
    data = dataset(valid=100)
    values = recipe(data, tmp_path / "run", epochs=1)
    first = train(parse(values), quiet=True)
    same = train(parse({**values, "resume": True}), quiet=True)
    assert (same["train"]["steps"], same["test"]) == (first["train"]["steps"], first["test"])
    assert train(parse({**values, "resume": True, "epochs": 2}), quiet=True)["train"]["epochs"] == 2


def test_runs_on_any_file_system(dataset: Make) -> None:
    data = dataset(valid=100)
    values = {**recipe(data, Path("x"), epochs=1, checkpoint_every=5), "out": "memory://runs/1"}
    train(parse({**values, "max_steps": 7}), quiet=True)
    result = train(parse({**values, "resume": True}), quiet=True)
    run = RunDirectory("memory://runs/1")
    assert run.steps()[-1] == result["train"]["steps"] == 19
    model = checkpoint.load_model("memory://runs/1")
    assert Trainer(model, quiet=True).evaluate(data.valid) == result["valid"]


def test_no_stray_files(dataset: Make, tmp_path: Path) -> None:
    data = dataset(valid=100)
    train(parse(recipe(data, tmp_path / "run", epochs=1)), quiet=True)
    found = {path.name for path in (tmp_path / "run").iterdir()}
    files = {"recipe.yaml", "status.json", "result.json", "metrics.jsonl", "best", "last"}
    assert found == files | {"checkpoints", "tensorboard"}
