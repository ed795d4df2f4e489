"""From logs to a trained model with every file on a server: what comes out is what comes out on a local disk."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prep_logs import make_rows, text_of
from web_servers import Faulty, folder_app, serving

from lanner import manifest, storage
from lanner.data import Dataset
from lanner.errors import DataError
from lanner.prep import prepare as prep
from lanner.remote import access
from lanner.train import checkpoint
from lanner.train.evaluation import evaluate_checkpoint
from lanner.train.recipe import parse
from lanner.train.run import train

MODEL = {"name": "dlrm", "dim": 4, "bottom": [8, 4], "top": [8, 1]}
COLUMNS = {"numeric": 2, "categorical": 3}
ROWS = make_rows(1500, numeric=2, categorical=3)
LOGS = text_of(ROWS)


@pytest.fixture(params=["s3", "faulty s3", "hdfs", "faulty hdfs"])
def base(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder on a server, which fails every third request where it is faulty."""
    if "s3" in request.param:
        app, root = request.getfixturevalue("s3"), "s3://lake"
        monkeypatch.setattr("botocore.retryhandler.random", SimpleNamespace(random=lambda: 0.01))  # seconds to wait
    else:
        app, root = request.getfixturevalue("hdfs")
    monkeypatch.setattr(access, "WAITS", (0.01,) * 6)
    if "faulty" in request.param:
        app.every, app.kinds = 3, ("busy", "dropped", "cut")
    return f"{root}/work"


def recipe(home: str, **options: Any) -> dict[str, Any]:
    values = {"data": f"{home}/data", "out": f"{home}/run", "model": MODEL, "batch_size": 64, "epochs": 2}
    return {**values, "checkpoint_every": 9, "keep_checkpoints": 2, "log_every": 5, **options}


def run_all(home: str, scratch: Path) -> dict[str, Any]:
    """Prepare, train in two goes, evaluate and predict below `home`; what is to be the same everywhere."""
    for k, half in enumerate((text_of(ROWS[:800]), text_of(ROWS[800:]))):
        with storage.publish(f"{home}/logs/day-{k}.tsv") as file:
            file.write(half)
    prep(f"{home}/logs/day-*.tsv", f"{home}/data", test=300, scratch=str(scratch), quiet=True, **COLUMNS)
    manifest.verify(f"{home}/data", manifest.read(f"{home}/data", "dataset"), checksums=True)
    train(parse(recipe(home, max_steps=20)), quiet=True)
    result = train(parse(recipe(home, resume=True)), quiet=True)
    assert result["train"]["steps"] == 38
    found = evaluate_checkpoint(f"{home}/run", f"{home}/data/test", predictions=f"{home}/scores.parquet", quiet=True)
    assert found["auc"] == result["test"]["auc"]
    step = checkpoint.latest(f"{home}/run")
    names = [name for name in storage.list_files(step) if name.endswith((".bin", ".safetensors", "parquet"))]
    files = {name: storage.checksum(f"{step}/{name}") for name in names}
    parts = manifest.read(f"{home}/data", "dataset").files
    losses = [json.loads(line).get("loss") for line in storage.read_text(f"{home}/run/metrics.jsonl").splitlines()]
    scores = storage.checksum(f"{home}/scores.parquet")
    arrow = {name: entry.checksum for name, entry in parts.items() if name.endswith((".arrow", ".yaml"))}
    return {"checkpoint": files, "data": arrow, "losses": losses, "scores": scores, "auc": found["auc"]}


@pytest.mark.slow
def test_everything_happens_on_the_server(base: str, tmp_path: Path) -> None:
    expected = run_all(str(tmp_path / "local"), tmp_path / "scratch")
    assert run_all(base, tmp_path / "scratch") == expected
    assert len(expected["checkpoint"]) > 4


def test_a_dataset_without_its_manifest_is_refused(s3: Faulty, tmp_path: Path) -> None:
    storage.write_text("s3://lake/logs.tsv", LOGS.decode())
    prep("s3://lake/logs.tsv", "s3://lake/data", scratch=str(tmp_path), quiet=True, **COLUMNS)
    storage.remove("s3://lake/data/manifest.json")
    with pytest.raises(DataError, match=r"s3://lake/data"):
        Dataset.open("s3://lake/data")
    with pytest.raises(DataError, match=r"s3://lake/nothing: no such directory"):
        Dataset.open("s3://lake/nothing")


def test_a_dataset_is_read_over_http(tmp_path: Path) -> None:
    (tmp_path / "logs.tsv").write_bytes(LOGS)
    with serving(Faulty(folder_app(tmp_path, ranges=True))) as port:
        prep(f"http://127.0.0.1:{port}/logs.tsv", tmp_path / "data", quiet=True, **COLUMNS)
        read = Dataset.open(f"http://127.0.0.1:{port}/data").train
        assert read is not None and read.rows == 1200
