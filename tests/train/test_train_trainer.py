"""Training end to end through the Python API and the recipe."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from train_datasets import random_rows, schema, write

from lanner.data import Dataset
from lanner.embedding.optimizers import SGD, Adagrad, Adam, RowWiseAdagrad
from lanner.errors import ConfigError, DataError, SchemaError
from lanner.models import DLRM
from lanner.schema import Schema
from lanner.train import Trainer
from lanner.train.recipe import parse
from lanner.train.run import train

Make = Callable[..., Dataset]
SMALL: dict[str, Any] = {"dim": 4, "bottom": (8, 4), "top": (8, 1)}


def trainer(data: Dataset, model: dict[str, Any] | None = None, **options: Any) -> Trainer:
    return Trainer(DLRM(data.schema, **SMALL | (model or {})), **{"batch_size": 64, "quiet": True, **options})


def test_it_learns(dataset: Make) -> None:
    data = dataset(train=3000, test=1000)
    ours = trainer(data, epochs=3, embedding_optimizer=RowWiseAdagrad(0.05), dense_optimizer=Adam(0.01))
    result = ours.fit(data.train)
    assert result["healthy"] and result["verdict"] == "ok" and result["valid"] is None
    assert result["train"]["steps"] == 3 * 47
    assert result["train"]["rows"] == 3000
    assert ours.evaluate(data.test)["auc"] > 0.9


def test_37_rows_in_batches_of_64(dataset: Make) -> None:
    data = dataset(train=37, test=37)
    result = train(parse({"data": data.path, "batch_size": 64, "model": SMALL}), quiet=True)
    assert result["train"]["steps"] == 1
    assert result["test"]["rows"] == 37
    assert np.isfinite(result["test"]["log_loss"])


def test_two_rows_that_are_all_there_is(dataset: Make) -> None:
    data = dataset(train=1, test=1)
    ours = trainer(data, {"batch_norm": True})
    ours.fit(data.train)
    assert ours.evaluate(data.test)["rows"] == 1


@pytest.mark.parametrize("batch_norm", [False, True])
def test_every_row_of_the_last_short_batch_counts(dataset: Make, batch_norm: bool) -> None:
    data = dataset(train=129, test=129)
    ours = trainer(data, {"batch_norm": batch_norm}, epochs=2)
    assert ours.fit(data.train)["train"]["rows"] == 129
    found = ours.predict(data.test)
    assert found.shape == (129,) and found.dtype == np.float32
    labels = data.test.slice(0, 129).labels.numpy()[:, 0]
    expected = -np.log(np.where(labels == 1, found.astype(float), 1 - found.astype(float))).mean()
    assert ours.evaluate(data.test)["log_loss"] == pytest.approx(expected, rel=1e-6)


def test_predictions_do_not_depend_on_the_batch_size(dataset: Make) -> None:
    data = dataset()
    ours = trainer(data, {"batch_norm": True, "dropout": 0.5})
    ours.fit(data.train)
    expected = ours.predict(data.test)
    for size in (1, 7, 300):
        np.testing.assert_allclose(ours.predict(data.test, size), expected, rtol=0, atol=1e-6)


def test_recipe_and_python_give_the_same_result(dataset: Make, tmp_path: Path) -> None:
    data = dataset(valid=200)
    values = {"data": data.path, "out": str(tmp_path / "run"), "model": {"name": "dlrm", **SMALL, "dropout": 0.3}}
    settings = {"seed": 3, "batch_size": 64, "epochs": 2, "embedding_l2": 1e-3}
    dense = {"name": "SGD", "lr": 0.05, "weight_decay": 1e-3}
    optimizers = {"embedding_optimizer": {"name": "Adam", "lr": 0.01}, "dense_optimizer": dense}
    by_recipe = train(parse({**values, **settings, **optimizers}), quiet=True)
    torch.manual_seed(99)  # the surroundings must not matter
    model = DLRM(data.schema, **SMALL, dropout=0.3, seed=3)
    given = {"embedding_optimizer": Adam(0.01), "dense_optimizer": SGD(0.05, weight_decay=1e-3)}
    ours = Trainer(model, **settings, **given, quiet=True, out=tmp_path / "2")
    by_hand = ours.fit(data.train, data.valid)
    assert by_recipe["valid"] == by_hand["valid"]
    assert by_recipe["train"] == by_hand["train"]
    assert by_recipe["test"] == ours.evaluate(data.test)


def test_another_seed_gives_another_result(dataset: Make) -> None:
    data = dataset()
    first, second = (trainer(data, seed=seed).fit(data.train)["train"] for seed in (0, 1))
    assert first["log_loss"] != second["log_loss"]


@pytest.mark.parametrize("optimizer", [SGD(0.1), Adagrad(0.05), RowWiseAdagrad(0.05), Adam(0.01)])
def test_rows_that_did_not_occur_are_untouched(tmp_path: Path, optimizer: Any) -> None:
    of = schema(rows=(50, 50))
    rows = random_rows(300, of)
    rows["c0"] = rows["c0"] % 20
    data = write(tmp_path / "data", of, train=rows)
    ours = trainer(data, embedding_optimizer=optimizer)
    before = ours.model.embedding.weight("c0").clone()
    ours.fit(data.train)
    changed = (ours.model.embedding.weight("c0") != before).any(1)
    occurred = torch.zeros(50, dtype=torch.bool)
    occurred[torch.from_numpy(np.unique(rows["c0"]))] = True
    assert torch.equal(changed, occurred)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_16_bit_training_learns_as_well(dataset: Make, precision: str) -> None:
    data = dataset(train=3000, test=1000)
    options: dict[str, Any] = {"embedding_optimizer": RowWiseAdagrad(0.05), "dense_optimizer": Adam(0.01), "epochs": 3}
    ours = trainer(data, precision=precision, **options)
    ours.fit(data.train)
    full = trainer(data, **options)
    full.fit(data.train)
    assert ours.evaluate(data.test)["auc"] == pytest.approx(full.evaluate(data.test)["auc"], abs=0.01)


def test_weight_decay_and_embedding_l2_pull_towards_zero(dataset: Make) -> None:
    data = dataset(train=2000)

    def sizes(decay: float = 0.0, **options: Any) -> tuple[float, float]:
        dense = SGD(0.1, weight_decay=decay)
        ours = trainer(data, epochs=3, dense_optimizer=dense, embedding_optimizer=Adagrad(0.05), **options)
        ours.fit(data.train)
        dense = sum(p.detach().square().sum().item() for n, p in ours.model.named_parameters() if "embedding" not in n)
        return dense, float(ours.model.embedding.weight("c0").square().sum())

    plain, decayed, penalised = sizes(), sizes(decay=0.05), sizes(embedding_l2=0.1)
    assert decayed[0] < 0.8 * plain[0]
    assert penalised[1] < 0.8 * plain[1]


def test_sample_weights_of_zero_remove_rows(tmp_path: Path) -> None:
    of = schema(weight="w")
    rows = random_rows(500, of)
    rows["w"] = np.ones(500, np.float32)
    data = write(tmp_path / "all", of, train=rows, test=rows)
    heavy = {**rows, "w": np.where(np.arange(500) % 2 == 0, 3.0, 0.0).astype(np.float32)}
    weighted = write(tmp_path / "weighted", of, train=heavy, test=heavy)
    half = write(tmp_path / "half", of, test={name: values[::2] for name, values in rows.items()})
    ours = trainer(data)
    assert ours.evaluate(weighted.test)["auc"] == pytest.approx(ours.evaluate(half.test)["auc"])
    assert trainer(weighted).fit(weighted.train)["train"] != trainer(data).fit(data.train)["train"]


def test_extreme_numbers_train_to_finite_weights(tmp_path: Path) -> None:
    of = schema(dense=1)
    raw = np.array([-3, -2, -1, 0, 1, 2147483647, 3000000000, 0])
    rows = {**random_rows(8, of), "dense": np.log1p(np.maximum(raw, 0))[:, None]}
    data = write(tmp_path / "data", of, train=rows, test=rows)
    ours = trainer(data, batch_size=8, epochs=5, embedding_optimizer=SGD(0.1), dense_optimizer=SGD(0.1))
    result = ours.fit(data.train)
    assert result["train"]["steps"] == 5 and np.isfinite(result["train"]["log_loss"])
    assert all(torch.isfinite(p).all() for p in ours.model.parameters())
    assert torch.isfinite(ours.model.embedding.weight("c0")).all()


def test_several_labels_with_loss_weights(tmp_path: Path) -> None:
    of = schema(labels=({"name": "click"}, {"name": "buy", "loss_weight": 0.5}))
    rows = random_rows(2000, of)
    data = write(tmp_path / "data", of, train=rows, test=rows)
    ours = trainer(data, epochs=3, embedding_optimizer=Adam(0.01), dense_optimizer=Adam(0.01))
    ours.fit(data.train)
    assert ours.predict(data.test).shape == (2000, 2)
    found = ours.evaluate(data.test)
    assert set(found["labels"]) == {"click", "buy"}
    assert all(each["auc"] > 0.8 for each in found["labels"].values())


def test_ragged_features(tmp_path: Path) -> None:
    encoder = {"kind": "identity", "size": 40}
    feature = {"name": "c0", "raw": "int", "encoder": encoder, "hotness": None, "separator": "|", "pooling": "mean"}
    of = Schema.parse({"labels": [{"name": "label"}], "sparse": [feature], "tables": [{"name": "c0", "rows": 40}]})
    draw = np.random.default_rng(0)
    bags = [draw.integers(0, 40, draw.integers(0, 5)).tolist() for _ in range(2000)]
    high = [bool(bag) and np.mean(bag) > 20 for bag in bags]
    rows = {"c0": bags, "label": np.array(high).astype(np.uint8)}
    data = write(tmp_path / "data", of, train=rows, test=rows)
    ours = trainer(data, epochs=5, embedding_optimizer=Adam(0.01), dense_optimizer=Adam(0.01))
    ours.fit(data.train)
    assert ours.evaluate(data.test)["auc"] > 0.95


def test_one_class_labels(tmp_path: Path) -> None:
    of = schema()
    rows = random_rows(300, of)
    clear = {**random_rows(100, of, 1), "label": np.zeros(100, np.uint8)}
    data = write(tmp_path / "data", of, train=rows, valid=clear, test={**clear, "label": np.ones(100, np.uint8)})
    recipe = {"data": data.path, "out": str(tmp_path / "run"), "model": SMALL, "epochs": 4, "early_stopping": 1}
    result = train(parse(recipe), quiet=True)
    assert result["train"]["epochs"] == 4, "an undefined metric must not stop training"
    assert result["train"]["best_step"] is None
    for split in ("valid", "test"):
        assert result[split]["auc"] is None
        assert result[split]["log_loss"] > 0
    assert "every label is 1" in json.loads((tmp_path / "run" / "result.json").read_text())["test"]["auc_reason"]


def test_early_stopping_keeps_the_best_weights(dataset: Make) -> None:
    data = dataset(train=300, valid=300)
    ours = trainer(data, epochs=200, early_stopping=2, embedding_optimizer=Adam(0.2), dense_optimizer=Adam(0.02))
    result = ours.fit(data.train, data.valid)
    assert result["train"]["epochs"] < 200
    assert result["train"]["best_step"] == result["train"]["steps"] - 2 * 5
    assert ours.evaluate(data.valid) == result["valid"]


def test_evaluation_every_few_steps(dataset: Make, tmp_path: Path) -> None:
    data = dataset(train=640, valid=100)
    trainer(data, evaluate_every=4, log_every=5, out=tmp_path / "run").fit(data.train, data.valid)
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records if r["kind"] == "valid"] == [4, 8, 10]
    assert [r["step"] for r in records if r["kind"] == "train"] == [5, 10]


def test_max_steps_and_training_on(dataset: Make) -> None:
    data = dataset(train=640)
    ours = trainer(data, max_steps=4)
    assert ours.fit(data.train)["train"]["steps"] == 4
    assert ours.fit(data.train)["train"]["steps"] == 8


def test_schedule_scales_every_rate(dataset: Make) -> None:
    data = dataset(train=640)
    ours = trainer(data, schedule={"decay_start": 0, "decay_steps": 1})
    weights = [p.clone() for p in ours.model.parameters()], ours.model.embedding.weight("c0").clone()
    ours.fit(data.train)  # the first step has factor 1, all others 0
    once = trainer(data, max_steps=1)
    once.fit(data.train)
    assert not torch.equal(weights[1], ours.model.embedding.weight("c0"))
    assert torch.equal(ours.model.embedding.weight("c0"), once.model.embedding.weight("c0"))
    for p, q in zip(ours.model.parameters(), once.model.parameters(), strict=True):
        assert torch.equal(p, q)


def test_mistakes_come_before_any_work(dataset: Make, tmp_path: Path) -> None:
    data = dataset()
    with pytest.raises(ConfigError, match=r"Trainer: epochs: .* \(got 0\)"):
        trainer(data, epochs=0)
    with pytest.raises(ConfigError, match="data=DATASET"):
        train(parse({}))
    with pytest.raises(DataError, match="manifest"):
        train(parse({"data": str(tmp_path)}))
    other = write(tmp_path / "other", schema(rows=(20, 31)), test=random_rows(10, schema()))
    with pytest.raises(SchemaError, match="size: 30 != 31"):
        trainer(data).evaluate(other.test)
    empty = write(tmp_path / "no-train", schema(), test=random_rows(10, schema()))
    with pytest.raises(DataError, match="no training rows"):
        train(parse({"data": empty.path, "model": SMALL}))


def test_a_module_that_is_no_ranking_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="Linear has no 'schema': a ranking model is a module with"):
        Trainer(torch.nn.Linear(2, 1))  # type: ignore[arg-type]


def test_an_occupied_run_directory_is_refused(dataset: Make, tmp_path: Path) -> None:
    data = dataset()
    recipe = {"data": data.path, "out": str(tmp_path / "run"), "model": SMALL}
    train(parse(recipe), quiet=True)
    with pytest.raises(ConfigError, match="holds a run already"):
        train(parse(recipe), quiet=True)
    train(parse({**recipe, "overwrite": True}), quiet=True)
