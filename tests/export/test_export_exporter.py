"""Versions of a repository: whole or absent, equal to the model, and never in each other's way."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from google.protobuf import text_format
from torch import Tensor, nn
from tritonclient.grpc.model_config_pb2 import TYPE_FP32, TYPE_INT64, TYPE_STRING, ModelConfig
from typer.testing import CliRunner

from lanner import manifest
from lanner.cli.export import export as export_command
from lanner.errors import ConfigError, DataError, ExportError
from lanner.export import export, exporter
from lanner.export.graph import DenseGraph
from lanner.export.onnx import to_onnx
from lanner.export.tables import load_tables
from lanner.export.verification import model_without_rows, random_batch, verify
from lanner.models import DLRM, RankingModel
from lanner.schema import Schema
from lanner.train import Trainer, checkpoint


def make_schema(dense: int = 2, features: tuple[dict[str, Any], ...] = (), labels: int = 1) -> Schema:
    return Schema.parse(
        {
            "labels": [{"name": f"y{k}"} for k in range(labels)],
            "dense": [{"name": f"d{k}"} for k in range(dense)],
            "sparse": [{"name": f"s{k}", "encoder": {"kind": "hash", "size": 9}, **f} for k, f in enumerate(features)],
            "tables": [{"name": f"s{k}", "rows": 10} for k in range(len(features))],
        }
    )


def save(model: RankingModel, path: Path) -> Path:
    recipe = {"model": {"name": "dlrm", **model.hyperparameters}}
    checkpoint.save(path, model, checkpoint.Contents(optimizer={}, trainer={"step": 5}, recipe=recipe))
    return path


@pytest.fixture(scope="module")
def model() -> RankingModel:
    return DLRM(make_schema(2, ({}, {"hotness": None, "separator": "|"})), dim=4, bottom=(8, 4), top=(8, 1)).eval()


@pytest.fixture(scope="module")
def source(model: RankingModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(model, tmp_path_factory.mktemp("source") / "checkpoint")


def test_the_command_says_how_a_running_server_takes_the_version(source: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(export_command)
    done = CliRunner().invoke(app, [str(source), "--repository", str(tmp_path), "--name", "ctr"])
    assert done.exit_code == 0, done.output
    said = " ".join(done.stderr.split())
    assert "restarted, or, with --model-control explicit, when asked to load 'ctr'" in said


@pytest.fixture(scope="module")
def graph(model: RankingModel) -> bytes:
    return to_onnx(model)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, graph: bytes) -> None:
    """The graph of `model` made once instead of in every test."""
    monkeypatch.setattr(exporter, "to_onnx", lambda _model: graph)


@pytest.mark.parametrize(
    "variant",
    [
        DLRM(make_schema(3, ({}, {}, {"hotness": 2, "separator": ",", "pooling": "mean"}), labels=2), dim=8),
        DLRM(make_schema(0, ({}, {})), dim=4, top=(8, 1)),
        DLRM(make_schema(4, ()), dim=4, bottom=(8, 4), top=(8, 1), batch_norm=True),
        DLRM(make_schema(1, ({},)), dim=3, interaction="cat", top=(5, 1), dropout=0.5),
    ],
    ids=["labels", "no dense", "no sparse", "cat"],
)
def test_the_graph_equals_the_head_for_every_size(variant: RankingModel, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(to_onnx(variant))
    dense_graph = DenseGraph(tmp_path / "model.onnx")
    assert dense_graph.outputs == len(variant.schema.labels)
    for rows in (1, 2, 49, 2050):
        dense, bags = random_batch(variant.schema, rows, np.random.default_rng(rows))
        with torch.no_grad():
            embedded = variant.embedding(bags) if bags.names else torch.empty(rows, 0)
            expected = torch.sigmoid(variant.head(torch.from_numpy(dense), embedded)).numpy()
        scores = dense_graph(dense, embedded.numpy())
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("quick")
def test_a_version_holds_all_a_server_needs(source: Path, model: RankingModel, tmp_path: Path) -> None:
    path = Path(export(source, tmp_path, "m"))
    assert path == tmp_path / "m" / "1"
    written = manifest.read(path, "repository")
    manifest.verify(path, written, checksums=True)
    assert written.fingerprint == model.schema.fingerprint()
    assert written.info["source"]["step"] == 5
    assert {"model.onnx", "schema.yaml", "tables/s0/key", "tables/s0/emb_vector"} <= written.files.keys()
    assert Schema.load(path / "schema.yaml").difference(model.schema) is None
    tables = load_tables(path / "tables", model.schema)
    for name in ("s0", "s1"):
        assert torch.equal(tables.weight(name), model.embedding.weight(name))


@pytest.mark.usefixtures("quick")
def test_the_configuration_describes_both_request_forms(source: Path, tmp_path: Path) -> None:
    export(source, tmp_path, "m")
    config = text_format.Parse((tmp_path / "m" / "config.pbtxt").read_text(), ModelConfig())
    inputs = {given.name: (given.data_type, list(given.dims), given.optional) for given in config.input}
    assert inputs["dense"] == (TYPE_FP32, [2], True)
    assert inputs["ids"] == (TYPE_INT64, [1], True)
    assert inputs["s1.ids"] == (TYPE_INT64, [-1], True)
    assert inputs["s0"] == (TYPE_STRING, [1], True)
    assert [(o.name, list(o.dims)) for o in config.output] == [("score", [1])]
    assert json.loads(config.parameters["schema"].string_value)["sparse"][0]["name"] == "s0"
    assert config.max_batch_size > 0


@pytest.mark.usefixtures("quick")
def test_versions_count_up_and_settings_made_by_hand_stay(source: Path, tmp_path: Path) -> None:
    export(source, tmp_path, "m")
    config = tmp_path / "m" / "config.pbtxt"
    text = config.read_text().replace("max_batch_size: 4096", "max_batch_size: 128")
    text = text.replace("preferred_batch_size: 256", "preferred_batch_size: 64")
    config.write_text(text.replace("preferred_batch_size: 1024", "max_queue_delay_microseconds: 700"))
    assert export(source, tmp_path, "m", version=7).endswith("/m/7")
    assert export(source, tmp_path, "m").endswith("/m/8")
    kept = text_format.Parse(config.read_text(), ModelConfig())
    assert kept.max_batch_size == 128
    assert list(kept.dynamic_batching.preferred_batch_size) == [64]
    assert kept.dynamic_batching.max_queue_delay_microseconds == 700
    assert len(kept.output) == 1
    with pytest.raises(ConfigError, match="7 exists; versions are never overwritten"):
        export(source, tmp_path, "m", version=7)


@pytest.mark.usefixtures("quick")
def test_exports_at_the_same_time_take_different_numbers(source: Path, tmp_path: Path) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(export(source, tmp_path, "m"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(Path(path).name for path in found) == ["1", "2", "3", "4"]


class Differs(nn.Module):
    """A head whose exported form would be another function than the one it computes."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 1.001 if torch.compiler.is_compiling() else x


def test_a_graph_that_differs_is_never_published(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graph: bytes, model: RankingModel
) -> None:
    good = tmp_path / "m" / "1"
    monkeypatch.setattr(exporter, "to_onnx", lambda _model: graph)
    export(source, tmp_path, "m")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def different(given: RankingModel) -> bytes:
        given.top.append(Differs())
        return to_onnx(given)

    monkeypatch.setattr(exporter, "to_onnx", different)
    with pytest.raises(ExportError, match=r"differ from the model's by 0\.00"):
        export(source, tmp_path, "m")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in good.parent.iterdir()) == ["1", "config.pbtxt"]
    verify(model_without_rows(str(source), model.schema), good)


def test_what_cannot_be_exported_is_said_before_the_work(source: Path, tmp_path: Path) -> None:
    for name in ("", "a/b", "..", ".m"):
        with pytest.raises(ConfigError, match="cannot name a model"):
            export(source, tmp_path, name)
    with pytest.raises(ConfigError, match="numbered from 1"):
        export(source, tmp_path, "m", version=0)
    with pytest.raises(ConfigError, match="must be a local directory"):
        export(source, "s3://bucket/repository", "m")
    with pytest.raises(DataError, match="neither a checkpoint nor a run directory"):
        export(tmp_path, tmp_path, "m")
    assert not (tmp_path / "m").exists()
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.pbtxt").write_text('max_batch_size: 8\nnane: "m"\n')
    with pytest.raises(ConfigError, match=r"config.pbtxt: 2:1.*nane"):
        export(source, tmp_path, "m")
    (tmp_path / "m" / "config.pbtxt").write_text("max_batch_size: 8\ndynamic_batching { preferred_batch_size: 9 }\n")
    with pytest.raises(ConfigError, match=r"preferred_batch_size \[9\] must lie in 1..8"):
        export(source, tmp_path, "m")


@pytest.mark.usefixtures("quick")
def test_a_trainer_can_be_exported_as_it_is(model: RankingModel, tmp_path: Path) -> None:
    path = Path(export(Trainer(model, quiet=True), tmp_path, "m"))
    tables = load_tables(path / "tables", model.schema)
    assert all(torch.equal(tables.weight(name), model.embedding.weight(name)) for name in ("s0", "s1"))
