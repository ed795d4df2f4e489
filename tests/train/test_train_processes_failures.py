"""What several processes do when batches are uneven, when one fails or is killed, and when they are stopped."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import train_datasets
from process_training import MODEL, Recipe, plan
from processes import Failure, outcomes_of, run

from lanner import Trainer
from lanner.data import Dataset
from lanner.embedding.sharding.exchange import Wire
from lanner.models import DLRM
from lanner.train.recipe import parse
from lanner.train.run import train
from lanner.train.step import TrainingStep

ROWS = 32 * 6 + 1
"""Seven batches; of the last one the first of two processes has no row."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    schema, folder = train_datasets.schema(rows=(20, 300)), tmp_path_factory.mktemp("data")
    splits = {name: train_datasets.random_rows(rows, schema, rows) for name, rows in (("train", ROWS), ("test", 133))}
    train_datasets.write(folder, schema, **splits)
    return folder


def recipe(data: Path, out: Path, **changes: Any) -> Recipe:
    return {"data": str(data), "out": str(out), "model": MODEL, "batch_size": 32, "epochs": 2, **changes}


def at_step(number: int, action: Any) -> None:
    """From now on in this process, `action()` comes before training step `number` (from 1)."""
    own, done = TrainingStep.__call__, iter(range(1, 1 << 30))

    def step(self: TrainingStep, *arguments: Any) -> Any:
        if next(done) == number:
            action()
        return own(self, *arguments)

    TrainingStep.__call__ = step  # type: ignore[method-assign]


def calls_and_predictions(rank: int, data: str) -> tuple[int, np.ndarray, dict[str, Any]]:
    """Exchanges made in training and evaluation, predictions, and metrics."""
    calls, own = 0, Wire._call

    def count(self: Wire, *arguments: Any) -> None:
        nonlocal calls
        calls += 1
        own(self, *arguments)

    Wire._call = count  # type: ignore[method-assign]
    dataset = Dataset.open(data)
    trainer = Trainer(DLRM(dataset.schema, dim=8, bottom=(8,), top=(16, 1)), batch_size=32, quiet=True)
    trainer.fit(dataset.train)
    return calls, trainer.predict(dataset.test, 32), trainer.evaluate(dataset.test, 32)


def test_all_make_the_same_calls_and_count_every_row_once(data: Path) -> None:
    """Case 43."""
    (calls, predictions, metrics), (other_calls, none, same) = run(calls_and_predictions, 2, str(data), timeout=60)
    _, alone, expected = calls_and_predictions(0, str(data))
    assert calls == other_calls
    assert metrics == same
    assert metrics["rows"] == expected["rows"] == len(predictions) == 133
    assert not len(none)
    np.testing.assert_allclose(predictions, alone, atol=1e-5)
    assert metrics["auc"] == pytest.approx(expected["auc"], abs=1e-5)


def killed(rank: int, values: Recipe) -> None:
    if rank == 1:
        at_step(5, lambda: os._exit(9))
    train(parse(values), quiet=True)


def test_the_others_end_when_one_is_killed(data: Path, tmp_path: Path) -> None:
    """Case 43."""
    left, gone = outcomes_of(killed, 2, recipe(data, tmp_path / "run"), timeout=60)
    assert isinstance(left, Failure)
    assert left.kind == "LannerError", left.text
    assert "one of them has ended" in left.text
    assert gone == Failure("ended", "exit status 9")
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["status"] == "failed"
    assert "one of them has ended" in status["cause"]


def stopped(rank: int, values: Recipe) -> str:
    if rank == 1:
        at_step(5, lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        train(parse(values), quiet=True)
    except KeyboardInterrupt:
        return "stopped"
    return "finished"


def test_a_signal_to_one_stops_all_after_the_same_step(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run(stopped, 2, recipe(data, out)) == ["stopped", "stopped"]
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["5"]
    assert json.loads((out / "status.json").read_text()) == {"status": "stopped", "processes": 2}


def refused(rank: int, recipes: list[Recipe]) -> list[str]:
    """The errors that recipes end with."""
    found = []
    for values in recipes:
        try:
            train(parse(values), quiet=True)
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def test_what_cannot_be_trained_is_refused_by_all(data: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "recipe.yaml").write_text("{}")
    for_three = {"plan": plan(3, "row", "row")}
    recipes = [recipe(data, taken), recipe(data, tmp_path / "new", embedding=for_three)]
    for occupied, wrong_plan in run(refused, 2, recipes):
        assert "holds a run already" in occupied
        assert "plan: it is for 3 processes, but 2 are running" in wrong_plan
    assert not (taken / "status.json").exists()
