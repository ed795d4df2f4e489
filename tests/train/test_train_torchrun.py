"""The command line under `torchrun`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import train_datasets

from lanner import Trainer
from lanner.data import Dataset

FAILING = """
import sys
from lanner.cli.main import run
from lanner.train.step import TrainingStep

own, steps = TrainingStep.__call__, iter(range(1, 1000))

def step(self, *arguments):
    if next(steps) == 5 and self.processes.rank == 1:
        raise OSError("no more of this")
    return own(self, *arguments)

TrainingStep.__call__ = step
run()
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    schema, folder = train_datasets.schema(rows=(20, 300)), tmp_path_factory.mktemp("data")
    splits = {name: train_datasets.random_rows(rows, schema, rows) for name, rows in (("train", 321), ("test", 133))}
    train_datasets.write(folder, schema, **splits)
    (folder / "recipe.yaml").write_text("model: {name: dlrm, dim: 8, bottom: [8], top: [16, 1]}\nbatch_size: 32\n")
    return folder


def torchrun(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Two processes on this machine."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def test_train_and_evaluate(data: Path, tmp_path: Path) -> None:
    run, recipe = tmp_path / "run", data / "recipe.yaml"
    trained = torchrun("-m", "lanner", "train", recipe, f"data={data}", f"out={run}", "--json")
    assert trained.returncode == 0, trained.stderr
    assert json.loads(trained.stdout)["test"]["rows"] == 133  # one document: only one process prints
    assert trained.stderr.count("samples/s") == 1
    assert json.loads((run / "status.json").read_text()) == {"status": "finished", "processes": 2}
    scored = torchrun("-m", "lanner", "evaluate", run, data / "test", "--predictions", tmp_path / "scores", "--json")
    assert scored.returncode == 0, scored.stderr
    expected = Trainer.load(run, quiet=True).predict(Dataset.open(data).test)
    scores = pq.read_table(tmp_path / "scores")["prediction"].to_numpy()
    np.testing.assert_allclose(scores, expected, atol=1e-5)


@pytest.mark.slow
def test_the_cause_of_a_failure_reaches_all(data: Path, tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    run = tmp_path / "run"
    failed = torchrun(tmp_path / "failing.py", "train", data / "recipe.yaml", f"data={data}", f"out={run}")
    assert failed.returncode != 0
    assert "error: no more of this" in failed.stderr
    status = json.loads((run / "status.json").read_text())
    assert status["status"] == "failed"
    assert "no more of this" in status["cause"]
