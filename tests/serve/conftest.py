"""Model repositories, and servers as processes of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

from lanner.export import export
from lanner.models import DLRM, RankingModel
from lanner.schema import Schema
from lanner.train import checkpoint

MIXED = Schema.parse(
    {
        "labels": [{"name": "click"}, {"name": "buy"}],
        "dense": [{"name": "price", "raw": "float"}, {"name": "age", "raw": "int", "transform": "log1p_clip0"}],
        "sparse": [
            {"name": "user", "raw": "int", "encoder": {"kind": "hash", "size": 50}},
            {"name": "tags", "raw": "string", "encoder": {"kind": "hash", "size": 20}, "hotness": None,
             "max_hotness": 5, "separator": "|"},
            {"name": "item", "raw": "int", "encoder": {"kind": "identity", "size": 30, "missing": 0}},
            {"name": "pair", "raw": "string", "encoder": {"kind": "hash", "size": 9}, "hotness": 2,
             "separator": ",", "pooling": "mean"},
        ],
        "tables": [{"name": "user", "rows": 51}, {"name": "tags", "rows": 21}, {"name": "item", "rows": 30},
                   {"name": "pair", "rows": 10}],
    }
)  # fmt: skip

PLANTED = Schema.parse(
    {
        "labels": [{"name": "y"}],
        "sparse": [
            {"name": "word", "raw": "string", "encoder": {"kind": "hash", "size": 1000, "seed": 7}},
            {"name": "big", "raw": "int", "encoder": {"kind": "hash", "size": 100_000}},
            {"name": "one", "raw": "int", "encoder": {"kind": "identity", "size": 10}, "table": "t1"},
            {"name": "two", "raw": "int", "encoder": {"kind": "identity", "size": 10, "missing": 9}, "table": "t2"},
        ],
        "tables": [{"name": "word", "rows": 1001}, {"name": "big", "rows": 100_001}, {"name": "t1", "rows": 10},
                   {"name": "t2", "rows": 10}],
    }
)  # fmt: skip
"""A model whose logit is the sum of its four embeddings, of one number each."""


def planted_model() -> RankingModel:
    """Row i of a hashed table holds i / 1000, but the last of `big` a NaN; every row of t1 holds 1.0, of t2 2.0."""
    model = DLRM(PLANTED, dim=1, top=(1,), interaction="cat")
    for table in ("word", "big"):
        weight = model.embedding.weight(table)
        weight[:] = torch.arange(len(weight))[:, None] / 1000.0
    model.embedding.weight("big")[-1] = torch.nan
    model.embedding.weight("t1").fill_(1.0)
    model.embedding.weight("t2").fill_(2.0)
    for parameter in model.top.parameters():
        torch.nn.init.ones_(parameter) if parameter.dim() == 2 else torch.nn.init.zeros_(parameter)
    return model.eval()


def save(model: RankingModel, path: Path) -> Path:
    """Write a checkpoint of an untrained model."""
    recipe = {"model": {"name": "dlrm", **model.hyperparameters}}
    checkpoint.save(path, model, checkpoint.Contents(optimizer={}, trainer={"step": 0}, recipe=recipe))
    return path


@dataclass
class Server:
    """A running `lanner serve`."""

    process: subprocess.Popen[bytes]
    http: int
    grpc: int
    metrics: int

    def http_client(self, **options: Any) -> Any:
        return http_client.InferenceServerClient(f"127.0.0.1:{self.http}", **options)

    def grpc_client(self) -> Any:
        return grpc_client.InferenceServerClient(f"127.0.0.1:{self.grpc}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal the process and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)


def start(repository: Path, *options: str) -> Server:
    """Start a server on free ports and wait until it is ready."""
    ready = repository / ".ready.json"
    ready.unlink(missing_ok=True)
    ports = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0", "--ready-file", str(ready)]
    command = [sys.executable, "-m", "lanner.cli.main", "serve", str(repository), *ports, *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(process.communicate()[1].decode())
        time.sleep(0.05)
    return Server(process, **json.loads(ready.read_text()))


@pytest.fixture(scope="session")
def mixed_schema() -> Schema:
    """Two labels, two numbers; a hashed feature, a ragged one, an identity and one of two ids a row."""
    return MIXED


@pytest.fixture(scope="session")
def mixed_model() -> RankingModel:
    return DLRM(MIXED, dim=8, bottom=(16, 8), top=(16, 1), seed=3).eval()


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory, mixed_model: RankingModel) -> Path:
    """A repository with the models `mixed` and `planted`."""
    folder = tmp_path_factory.mktemp("repository")
    source = tmp_path_factory.mktemp("checkpoints")
    export(save(mixed_model, source / "mixed"), folder, "mixed")
    export(save(planted_model(), source / "planted"), folder, "planted")
    return folder


@pytest.fixture(scope="session")
def start_server() -> Callable[..., Server]:
    """`start`, for tests that need a server of their own."""
    return start


@pytest.fixture(scope="session")
def server(repository: Path) -> Iterator[Server]:
    """A server of `repository` that all tests share."""
    running = start(repository)
    yield running
    assert running.stop() == 0
