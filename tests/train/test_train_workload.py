"""What a recipe needs is known, and refused where there is too little, before its tables are made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import train_datasets

from lanner.embedding import SGD, Adam
from lanner.embedding.planner import free_memory
from lanner.errors import ConfigError
from lanner.schema import Schema
from lanner.train.processes import Processes
from lanner.train.recipe import parse
from lanner.train.run import train
from lanner.train.workload import require_memory, workload

MODEL = {"dim": 8, "bottom": [16, 8], "top": [4, 1]}


def test_tables_and_layers_of_a_recipe() -> None:
    settings = {"c1": {"optimizer": {"name": "SGD", "lr": 0.1}}}
    recipe = parse({"model": MODEL, "batch_size": 512, "embedding": {"tables": settings}})
    needs = workload(recipe, train_datasets.schema(2, (10**9, 30)))
    assert [(load.rows, load.table.dim) for load in needs.loads] == [(10**9, 8), (30, 8)]
    assert needs.loads[0].optimizer == recipe.embedding_optimizer
    assert needs.loads[1].optimizer == SGD(0.1)
    assert needs.batch_size == 512
    bottom, top = (2 * 16 + 16) + (16 * 8 + 8), ((8 + 3) * 4 + 4) + (4 + 1)  # 3 pairs of 3 vectors
    assert (needs.dense.weights, needs.dense.inputs) == (bottom + top, 2)
    assert needs.dense.state == 8 == 4 * len(Adam().row_states(1))


def test_dynamic_tables_need_a_size_to_plan_but_none_to_train() -> None:
    schema, recipe = train_datasets.schema(2, (20, 30), dynamic=True), parse({"model": MODEL})
    with pytest.raises(ConfigError, match="table 'c0' is dynamic"):
        workload(recipe, schema)
    assert [load.rows for load in workload(recipe, schema, rows={"c0": 5, "c1": 7}).loads] == [5, 7]
    require_memory(recipe, schema, Processes(None))


def test_no_key_waits_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {"*": {"dynamic": {"min_count": 2}}}
    recipe = parse({"model": MODEL, "embedding": {"tables": tables}})
    monkeypatch.setattr("lanner.train.workload.free_bytes", lambda: 32 << 20)  # counting 4 million keys takes 320 MiB
    monkeypatch.setattr("lanner.train.workload.resident_bytes", lambda: 600 << 20)
    require_memory(recipe, train_datasets.schema(2, (20, 30), dynamic=True), Processes(None))


def test_a_schema_that_is_not_fitted() -> None:
    schema = Schema.parse({"labels": [{"name": "label"}], "sparse": [{"name": "c"}]})
    with pytest.raises(ConfigError, match="run prep to fit it"):
        workload(parse({"model": MODEL}), schema)


def test_training_is_refused_before_its_tables_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = train_datasets.schema(1, (2_000_000_000, 30))
    rows = {"label": np.array([0.0, 1.0]), "dense": np.zeros((2, 1)), "c0": np.array([1, 2]), "c1": np.array([3, 4])}
    train_datasets.write(tmp_path / "d", of, train=rows)
    recipe = parse({"data": str(tmp_path / "d"), "out": str(tmp_path / "run"), "model": {**MODEL, "dim": 64}})
    monkeypatch.setattr("lanner.train.workload.free_bytes", lambda: 8 << 30)
    with pytest.raises(ConfigError, match=r"rank 0 needs 52\d,\d+,\d+,\d+ bytes .* are free.*'c0' 484 GiB"):
        train(recipe, quiet=True)
    assert free_memory.resident_bytes() < 8 << 30
    assert not (tmp_path / "run" / "recipe.yaml").exists()
