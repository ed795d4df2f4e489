"""Checkpoints go from any number of processes and plan to any other: training continues as if nothing had happened."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import train_datasets
from process_training import MODEL, Recipe, plan, require_same, result_of, results_of
from processes import run

from lanner import Trainer
from lanner import manifest as manifests
from lanner.errors import DataError
from lanner.models import build
from lanner.train import checkpoint
from lanner.train.recipe import parse

STEPS, HALF = 100, 50


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 steps an epoch, so that the run is cut in the midst of one."""
    schema, folder = train_datasets.schema(rows=(20, 300, 7, 40)), tmp_path_factory.mktemp("data")
    splits = {name: train_datasets.random_rows(rows, schema, rows) for name, rows in (("train", 631), ("valid", 99))}
    train_datasets.write(folder, schema, **splits)
    return folder


def recipe(data: Path, out: Path, steps: int, placed: Recipe | None = None) -> Recipe:
    """Warm-up over 60 steps, so that the learning rate still moves where the run is cut."""
    base = {"data": str(data), "out": str(out), "model": MODEL, "batch_size": 16, "epochs": 3, "log_every": 1}
    base |= {"embedding_optimizer": {"name": "Adam", "lr": 0.01}, "schedule": {"warmup_steps": 60}}
    return {**base, "max_steps": steps, "resume": True, "embedding": {"plan": placed}}


def state_sums(rank: int, values: Recipe) -> list[float]:
    """Sums of the optimizer state that this process has of each table once it has taken up the run."""
    settings = parse(values)
    schema = checkpoint.open_checkpoint(checkpoint.latest(values["out"]))[1]
    trainer = Trainer(build("dlrm", schema, settings.embedding, **settings.model.hyperparameters), **settings.settings)
    trainer.resume(values["out"])
    embedding = trainer.model.embedding
    return [
        sum(float(np.abs(state).sum()) for rows in embedding.blocks(name) for state in rows.states.values())
        if name in embedding.shards
        else 0.0
        for name in ("c0", "c1", "c2", "c3")
    ]


def test_a_run_goes_on_in_other_numbers_of_processes(data: Path, tmp_path: Path) -> None:
    """Case 46: from 1 to 2, from 2 to 1, and from 2 to 2 under another plan."""
    straight = result_of(recipe(data, tmp_path / "straight", STEPS))
    first, second = plan(2, "row", "table", "column", "data"), plan(2, "table", "two-level", "row", "row")
    one, two = tmp_path / "one", tmp_path / "two"
    result_of(recipe(data, one, HALF))
    run(results_of, 2, [recipe(data, two, HALF, first)])
    sums = state_sums(0, recipe(data, one, STEPS))
    assert min(sums) > 0
    assert np.sum(run(state_sums, 2, recipe(data, one, STEPS, second)), 0) == pytest.approx(sums, rel=1e-5)
    shutil.copytree(two, tmp_path / "again")
    goes_on = [recipe(data, one, STEPS, first), recipe(data, tmp_path / "again", STEPS, second)]
    for found in run(results_of, 2, goes_on)[0]:
        compare(found, straight)
    compare(result_of(recipe(data, two, STEPS)), straight)


@pytest.mark.slow
def test_a_run_goes_on_in_four_processes(data: Path, tmp_path: Path) -> None:
    run(results_of, 2, [recipe(data, tmp_path / "two", HALF, plan(2, "row", "table", "column", "data"))])
    goes_on = recipe(data, tmp_path / "two", STEPS, plan(4, "two-level", "row", "column", "table"))
    compare(run(results_of, 4, [goes_on])[0][0], result_of(recipe(data, tmp_path / "straight", STEPS)))


def compare(found: Recipe, straight: Recipe) -> None:
    """Every step's loss and learning rate, and every evaluation; where the run was cut there was one more."""
    steps = [record for record in found["records"] if (record["kind"], record["step"]) != ("valid", HALF)]
    require_same(steps, straight["records"])
    assert found["train"]["steps"] == STEPS


def test_dropout_goes_on_in_as_many_processes(data: Path, tmp_path: Path) -> None:
    model = {**MODEL, "dropout": 0.5}
    straight, halves = ({**recipe(data, tmp_path / name, 12), "model": model} for name in ("straight", "halves"))
    expected = run(results_of, 2, [straight])[0][0]
    for steps in (7, 12):
        found = run(results_of, 2, [{**halves, "max_steps": steps}])[0][0]
    losses = ([r["loss"] for r in each["records"] if r["kind"] == "train"] for each in (found, expected))
    assert np.array_equal(*losses)


def test_missing_optimizer_state_is_an_error_unless_it_is_not_wanted(data: Path, tmp_path: Path) -> None:
    values = recipe(data, tmp_path / "run", 5)
    result_of(values)
    last = checkpoint.latest(values["out"])
    schema = checkpoint.open_checkpoint(last)[1]
    state = sorted(Path(last, "tables", "c1").glob("state.*"))[0]
    state.unlink()
    settings = parse(values)
    trainer = Trainer(build("dlrm", schema, **settings.model.hyperparameters), **settings.settings)
    with pytest.raises(DataError, match=f"c1/{state.name}"):
        trainer.resume(last)
    with pytest.raises(DataError, match=f"table 'c1'|c1/{state.name}"):
        trainer.model.embedding.embedding_load(Path(last, "tables"))
    trainer.model.embedding.embedding_load(Path(last, "tables"), optimizer_state=False)


def test_a_missing_state_of_the_dense_optimizer_is_an_error_unless_it_is_not_wanted(data: Path, tmp_path: Path) -> None:
    values = recipe(data, tmp_path / "run", 5)
    result_of(values)
    last = checkpoint.latest(values["out"])
    manifest, schema = checkpoint.open_checkpoint(last)
    file = f"{last}/dense_optimizer.safetensors"
    whole = checkpoint.read_tensors(file)
    for missing in ("bottom.0.weight/exp_avg", "bottom.0.weight"):
        checkpoint.write_tensors(file, {name: each for name, each in whole.items() if not name.startswith(missing)})
        files = {**manifest.files, "dense_optimizer.safetensors": manifests.entry(last, "dense_optimizer.safetensors")}
        manifests.write(last, manifest.model_copy(update={"files": files}))
        settings = parse(values)
        trainer = Trainer(build("dlrm", schema, **settings.model.hyperparameters), **settings.settings)
        with pytest.raises(DataError, match=r"'bottom.0.weight/exp_avg' is missing; pass optimizer_state=False"):
            trainer.resume(last)
        trainer.resume(last, optimizer_state=False)
        assert trainer.progress.step == 5
