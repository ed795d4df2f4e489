"""Runs that learned nothing say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from train_datasets import schema, write

from lanner.data import Dataset
from lanner.train.recipe import parse
from lanner.train.run import train
from lanner.train.verdict import judge


@pytest.fixture(scope="module")
def parity(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Two ids of 1,000 values; the label says whether they have the same parity."""
    of, draw = schema(dense=0, rows=(1000, 1000)), np.random.default_rng(0)

    def rows(count: int) -> dict[str, Any]:
        ids = draw.integers(0, 1000, (2, count))
        return {"c0": ids[0], "c1": ids[1], "label": ((ids[0] + ids[1]) % 2 == 0).astype(np.uint8)}

    return write(tmp_path_factory.mktemp("parity") / "data", of, train=rows(200_000), test=rows(20_000))


def run(data: Dataset, name: str, lr: float, **options: Any) -> dict[str, Any]:
    optimizer = {"name": name, "lr": lr}
    values = {"embedding_optimizer": optimizer, "dense_optimizer": optimizer, "batch_size": 1024, "epochs": 5}
    model = {"dim": 8, "top": [32, 1]}
    return train(parse({"data": data.path, "model": model, **values, **options}), quiet=True)


@pytest.mark.parametrize(("name", "lr"), [("Adam", 0.01), ("Adagrad", 0.1)])
def test_parity_is_learned(parity: Dataset, name: str, lr: float) -> None:
    result = run(parity, name, lr)
    assert result["test"]["auc"] > 0.99
    assert result["healthy"]


def test_a_rate_that_teaches_nothing(parity: Dataset) -> None:
    result = run(parity, "SGD", 1.0, epochs=1)
    assert result["test"]["auc"] < 0.6
    assert not result["healthy"] and result["verdict"] in ("no_better_than_chance", "constant")


def test_a_rate_that_destroys(parity: Dataset) -> None:
    result = run(parity, "Adam", 1000.0, epochs=1)
    assert not result["healthy"] and result["verdict"] != "ok"


def test_a_loss_that_is_not_finite_ends_training(parity: Dataset, tmp_path: Path) -> None:
    result = run(parity, "SGD", 1e30, out=str(tmp_path / "run"))
    assert result["verdict"] == "diverged" and not result["healthy"]
    assert result["train"]["steps"] < 10
    assert result["test"] is None
    assert (tmp_path / "run" / "result.json").exists()


def test_judgement() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 5000)
    assert judge(0.4 * labels + draw.random(5000) * 0.6, labels) == "ok"
    assert judge(draw.random(5000), labels) == "no_better_than_chance"
    assert judge(np.full(5000, 0.5), labels) == "constant"
    assert judge(np.full(5000, np.nan), labels) == "diverged"
    assert judge(draw.random(50), np.zeros(50)) == "ok", "one class cannot tell"
    both = np.stack([0.4 * labels + draw.random(5000) * 0.6, draw.random(5000)], 1)
    assert judge(both, np.stack([labels, labels], 1)) == "no_better_than_chance"
