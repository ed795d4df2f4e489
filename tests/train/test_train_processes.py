"""Training by several processes: the losses, metrics, predictions and checkpoints are those of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import train_datasets
from process_training import MODEL, Recipe, plan, require_same, result_of, results_of
from processes import run


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Small ones: "plain"; "rich", of weighted rows with two labels; "dynamic". The last batch of 32 has one row."""
    labels = {"name": "click"}, {"name": "buy", "loss_weight": 0.5}
    schemas = {
        "plain": train_datasets.schema(rows=(20, 300, 7, 40)),
        "rich": train_datasets.schema(rows=(20, 300, 7, 40), labels=labels, weight="w"),
        "dynamic": train_datasets.schema(rows=(1, 1), dynamic=True),
    }
    found = {}
    for name, schema in schemas.items():
        splits = {}
        for seed, (split, rows) in enumerate({"train": 32 * 12 + 1, "valid": 99, "test": 133}.items()):
            splits[split] = train_datasets.random_rows(rows, schema, seed)
            if name == "rich":
                splits[split]["w"] = np.random.default_rng(seed).random(rows).astype(np.float32)
        folder = tmp_path_factory.mktemp(name)
        train_datasets.write(folder, schema, **splits)
        found[name] = str(folder)
    return found


def recipe(data: str, **changes: Any) -> Recipe:
    base = {"data": data, "model": MODEL, "batch_size": 32, "epochs": 1, "log_every": 1, "evaluate_every": 5}
    return {**base, "embedding_optimizer": {"name": "Adagrad", "lr": 0.05}, **changes}


def variants(datasets: dict[str, str], ranks: int) -> dict[str, Recipe]:
    """Recipes with a plan for so many processes."""
    mixed = {"plan": plan(ranks, "row", "two-level", "data", "column")}
    cautious = {"name": "Adam", "lr": 0.001, "weight_decay": 1e-3, "clip_norm": 0.5}
    plain = recipe(datasets["plain"], epochs=2, early_stopping=3, checkpoint_every=4)
    return {
        "default": plain,
        "mixed": {**plain, "embedding": mixed, "dense_optimizer": {"name": "Adagrad", "lr": 0.01}},
        "rich": recipe(datasets["rich"], embedding=mixed, embedding_l2=1e-3, dense_optimizer=cautious),
        "one table": recipe(datasets["plain"], embedding={"plan": plan(ranks, *["table"] * 4)}, max_steps=6),
        "dynamic": recipe(
            datasets["dynamic"],
            epochs=2,
            embedding={"plan": plan(ranks, "row", "row"), "tables": {"c1": {"dynamic": {"min_count": 2}}}},
        ),
    }


def check(ranks: int, recipes: dict[str, Recipe], folder: Path) -> None:
    """Train on so many processes and on this one alone: all results are alike."""
    together = [{**each, "out": str(folder / f"{name} on {ranks}")} for name, each in recipes.items()]
    outcomes = run(results_of, ranks, together)
    for (name, each), found in zip(recipes.items(), zip(*outcomes, strict=True), strict=True):
        alone = result_of({**each, "out": str(folder / f"{name} alone"), "embedding": without_plan(each)})
        for one in found:
            require_same(one, alone, where=name)
    for each in together:
        assert json.loads(Path(each["out"], "status.json").read_text()) == {"status": "finished", "processes": ranks}


def without_plan(values: Recipe) -> Recipe:
    return {key: value for key, value in values.get("embedding", {}).items() if key != "plan"}


def test_two_processes_train_as_one(datasets: dict[str, str], tmp_path: Path) -> None:
    check(2, variants(datasets, 2), tmp_path)


@pytest.mark.slow
def test_four_processes_train_as_one(datasets: dict[str, str], tmp_path: Path) -> None:
    check(4, variants(datasets, 4), tmp_path)


def test_what_depends_on_the_processes_still_trains_them_alike(datasets: dict[str, str], tmp_path: Path) -> None:
    """Dropout and batch normalisation, also of no row, and 16-bit precision: all processes have the same outcome."""
    base = recipe(datasets["plain"], epochs=2, schedule={"warmup_steps": 5})
    cases = {
        "normalised": {**base, "model": {**MODEL, "dropout": 0.1, "batch_norm": True}},
        "fp16": {**base, "precision": "fp16"},
        "bf16": {**base, "precision": "bf16"},
    }
    outcomes = run(results_of, 2, [{**each, "out": str(tmp_path / name)} for name, each in cases.items()])
    for (name, each), (one, other) in zip(cases.items(), zip(*outcomes, strict=True), strict=True):
        assert one == other
        assert one["test"]["auc"] > 0.7
        if name != "normalised":
            alone = result_of({**each, "out": str(tmp_path / f"{name} alone")})
            assert one["test"]["log_loss"] == pytest.approx(alone["test"]["log_loss"], abs=0.01)
