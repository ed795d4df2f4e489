"""A model that several processes train together is exported as by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from processes import Failure, outcomes_of, run

from lanner.data.batch import Bags, Batch
from lanner.embedding.persistence import describe
from lanner.export import export
from lanner.export.graph import DenseGraph
from lanner.export.tables import load_tables
from lanner.models import DLRM
from lanner.schema import Schema
from lanner.train import Trainer

SCHEMA = Schema.parse(
    {
        "labels": [{"name": "y"}],
        "sparse": [{"name": "user", "raw": "int", "encoder": {"kind": "key"}},
                   {"name": "item", "encoder": {"kind": "identity", "size": 40}}],
        "tables": [{"name": "user", "rows": "dynamic"}, {"name": "item", "rows": 40}],
    }
)  # fmt: skip
KEYS = np.array([0, -1, np.iinfo(np.int64).min, np.iinfo(np.int64).max, *range(50, 80)])
ROW = {"kind": "row", "ranks": [0, 1]}
PLANS = {
    "row": {"version": 1, "world_size": 2, "tables": {"user": ROW, "item": ROW}},
    "column": {"version": 1, "world_size": 2, "tables": {t: {**ROW, "kind": "column"} for t in ("user", "item")}},
}


def rows(seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    ids = np.concatenate([rng.choice(KEYS, 16), rng.integers(0, 40, 16)])
    return Batch(torch.empty(16, 0), Bags(("user", "item"), torch.from_numpy(ids)), torch.ones(16, 1))


def train_and_export(rank: int, kind: str, repository: Path) -> tuple[str, np.ndarray]:
    """The version's directory, and the trained model's scores of rows that are the same on all ranks."""
    settings = {"plan": PLANS[kind], "tables": {"user": {"dynamic": {"default": 0.5}}}}
    model = DLRM(SCHEMA, dim=4, top=(8, 1), embedding=settings)
    trainer = Trainer(model, quiet=True)
    for step in range(3):
        trainer.step(rows(10 * step + rank), 1.0)
    path = export(trainer, repository, "m")
    model.eval()
    with torch.no_grad():
        return path, torch.sigmoid(model(rows(99))).numpy()


@pytest.mark.parametrize("kind", PLANS)
def test_processes_export_together(kind: str, tmp_path: Path) -> None:
    (path, scores), (other_path, other_scores) = run(train_and_export, 2, kind, tmp_path)
    assert path == other_path == str(tmp_path / "m" / "1")
    np.testing.assert_allclose(other_scores, scores, rtol=0, atol=1e-6)
    batch, tables = rows(99), load_tables(Path(path, "tables"), SCHEMA)
    with torch.no_grad():
        served = DenseGraph(Path(path, "model.onnx"))(batch.dense.numpy(), tables(batch.bags).numpy())
    np.testing.assert_allclose(served, scores, rtol=0, atol=1e-6)
    assert tables.dynamic_tables["user"].counters.unknown == np.count_nonzero(
        ~np.isin(batch.bags.values[:16], tables.dynamic_tables["user"].keys())
    )
    assert describe(Path(path, "tables"), "user").rows > 15


def export_badly(rank: int, repository: Path) -> None:
    export(Trainer(DLRM(SCHEMA, dim=4, top=(8, 1), embedding={"plan": PLANS["row"]}), quiet=True), repository, "a/b")


def test_what_fails_in_the_first_process_fails_in_all(tmp_path: Path) -> None:
    outcomes = outcomes_of(export_badly, 2, tmp_path)
    assert all(isinstance(each, Failure) and "cannot name a model" in each.text for each in outcomes)
    assert not list(tmp_path.iterdir())
