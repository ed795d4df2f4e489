"""Training with the GPU kernels: on the CUDA device where there is one, else on the CPU in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lanner.data import Dataset
from lanner.embedding import Adam, EmbeddingCollection
from lanner.errors import ConfigError
from lanner.export import export
from lanner.models import DLRM
from lanner.train import Trainer
from lanner.train.evaluation import evaluate_checkpoint
from lanner.train.processes import Processes
from lanner.train.recipe import parse
from lanner.train.run import train
from lanner.train.workload import require_memory

pytest.importorskip("triton")

Make = Callable[..., Dataset]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SMALL: dict[str, Any] = {"dim": 4, "bottom": [8, 4], "top": [8, 1]}


def trainer(data: Dataset, backend: Any, **options: Any) -> Trainer:
    """Of a small model with this form of the kernels."""
    model = DLRM(data.schema, seed=1, **SMALL)
    model.embedding = EmbeddingCollection.from_schema(data.schema, 4, seed=1, backend=backend)
    return Trainer(model, batch_size=16, embedding_optimizer=Adam(0.01), quiet=True, log_every=1, **options)


@pytest.mark.parametrize("options", [{}, {"labels": ({"name": "label"}, {"name": "late", "loss_weight": 0.5})}])
def test_trains_as_the_cpu_does(dataset: Make, options: dict[str, Any]) -> None:
    data = dataset(train=100, valid=40, test=40, **options)
    found, wanted = trainer(data, "gpu", device=DEVICE), trainer(data, "cpu")
    results = [each.fit(data.train, data.valid) for each in (found, wanted)]
    for part, metric in (("train", "epoch_loss"), ("valid", "log_loss")):
        assert results[0][part][metric] == pytest.approx(results[1][part][metric], abs=1e-4)
    np.testing.assert_allclose(found.predict(data.test), wanted.predict(data.test), atol=1e-4)
    assert next(found.model.top.parameters()).device.type == found.model.embedding.weight("c0").device.type == DEVICE


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_16_bit_training(dataset: Make, precision: str) -> None:
    data = dataset(train=100)
    found = trainer(data, "gpu", device=DEVICE, precision=precision).fit(data.train)
    wanted = trainer(data, "cpu").fit(data.train)
    assert found["train"]["epoch_loss"] == pytest.approx(wanted["train"]["epoch_loss"], rel=0.01)


def test_checkpoints_go_from_device_to_host_and_back(dataset: Make, tmp_path: Path) -> None:
    data = dataset(train=100, test=40)
    whole = trainer(data, "gpu", device=DEVICE, epochs=2)
    whole.fit(data.train)
    first = trainer(data, "gpu", device=DEVICE, epochs=2, max_steps=4)
    first.fit(data.train)
    first.save(tmp_path / "first")
    second = trainer(data, "cpu", epochs=2, max_steps=9)
    second.resume(tmp_path / "first")
    second.fit(data.train)
    second.save(tmp_path / "second")
    third = trainer(data, "gpu", device=DEVICE, epochs=2)
    third.resume(tmp_path / "second")
    third.fit(data.train)
    np.testing.assert_allclose(third.predict(data.test), whole.predict(data.test), atol=1e-4)


def test_a_model_trained_there_is_loaded_evaluated_and_exported_here(dataset: Make, tmp_path: Path) -> None:
    data = dataset(train=100, test=40)
    ours = trainer(data, "gpu", device=DEVICE, out=tmp_path / "run")
    ours.fit(data.train)
    scores = ours.predict(data.test)
    np.testing.assert_allclose(Trainer.load(tmp_path / "run", quiet=True).predict(data.test), scores, atol=1e-5)
    found = evaluate_checkpoint(str(tmp_path / "run"), f"{data.path}/test", quiet=True, device=DEVICE)
    assert found["auc"] == pytest.approx(ours.evaluate(data.test)["auc"], abs=1e-5)
    assert Path(export(ours, tmp_path / "repository", "model"), "tables").is_dir()


def test_a_recipe_names_the_device(dataset: Make, tmp_path: Path) -> None:
    data = dataset(train=60)
    values = {"data": data.path, "out": str(tmp_path / "run"), "model": SMALL, "batch_size": 16, "device": DEVICE}
    assert train(parse(values), quiet=True)["train"]["steps"] == 4
    assert "device" not in Trainer.load(tmp_path / "run", quiet=True).recipe()
    with pytest.raises(ConfigError, match="device"):
        parse({**values, "device": "gpu"})
    with pytest.raises(ConfigError, match="CUDA devices"):
        train(parse({**values, "device": "cuda:99", "overwrite": True}), quiet=True)


def test_memory_of_the_device_is_asked_for(dataset: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 2000))
    data = dataset(train=60)
    with pytest.raises(ConfigError, match=r"1,000 .* are free"):
        require_memory(parse({"data": data.path, "model": SMALL, "device": "cuda"}), data.schema, Processes(None))
    keys = data.schema.model_copy(
        update={"tables": tuple(table.model_copy(update={"rows": "dynamic"}) for table in data.schema.tables)}
    )
    with pytest.raises(ConfigError, match="dynamic tables are held in host memory"):
        require_memory(parse({"data": data.path, "model": SMALL, "device": "cuda"}), keys, Processes(None))
