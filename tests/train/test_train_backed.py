"""Training with tables on disk gives what training in memory gives, bit for bit, and so does all that follows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import train_datasets
from typer.testing import CliRunner

from lanner.cli.main import app
from lanner.data import Batch, Dataset
from lanner.embedding import Backing
from lanner.embedding.planner.memory import PARTS, needed
from lanner.embedding.sharding import Plan
from lanner.errors import ConfigError, DataError
from lanner.export import export
from lanner.models import DLRM
from lanner.train import Trainer, checkpoint
from lanner.train.recipe import load, parse
from lanner.train.run import train
from lanner.train.workload import workload

Make = Callable[..., Dataset]
ROWS = (3000, 2000)
MODEL: dict[str, Any] = {"dim": 4, "bottom": [8, 4], "top": [8, 1]}
MEMORY = "100 kB"  # of 280 kB


@pytest.fixture
def data(dataset: Make) -> Dataset:
    return dataset(train=1500, valid=200, test=300, rows=ROWS)


def recipe(data: Dataset, out: Path, on_disk: bool, **options: Any) -> dict[str, Any]:
    values = {"data": data.path, "out": str(out), "model": MODEL, "batch_size": 64, "epochs": 2, "evaluate_every": 7}
    embedding = {"memory": MEMORY, "backing": str(out.parent), "ahead": 3} if on_disk else {}
    return {**values, "embedding": embedding, **options}


def files(run: Path) -> dict[str, bytes]:
    """The tables of a run's last checkpoint."""
    folder = Path(checkpoint.latest(run)) / "tables"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*/*") if path.suffix != ".json"}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_run_is_the_one_in_memory(data: Dataset, tmp_path: Path, precision: str) -> None:
    results = []
    for on_disk in (False, True):
        out = tmp_path / f"run-{on_disk}"
        results.append(train(parse(recipe(data, out, on_disk, precision=precision)), quiet=True))
    expected, found = results
    numbers = found.pop("tables_on_disk")
    assert {**found, "samples_per_second": 0} == {**expected, "samples_per_second": 0}
    assert files(tmp_path / "run-True") == files(tmp_path / "run-False")
    assert set(numbers) == {"c0", "c1"}
    for of in numbers.values():
        assert 0 < of["bytes"] < 100_000 and of["disk_bytes"] > 0
        assert of["lookups"] > 3000 and 0 < of["misses"] < of["lookups"]
        assert of["rows_read"] > 0 and of["rows_written"] > 0


def test_a_run_goes_on_with_another_budget(data: Dataset, tmp_path: Path) -> None:
    train(parse(recipe(data, tmp_path / "whole", False)), quiet=True)
    cut = recipe(data, tmp_path / "cut", True)
    train(parse({**cut, "max_steps": 17}), quiet=True)
    train(parse({**cut, "max_steps": 30, "embedding": {}, "resume": True}), quiet=True)
    result = train(parse({**cut, "embedding": {"memory": "150 kB"}, "resume": True}), quiet=True)
    assert result["tables_on_disk"]
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


def test_a_checkpoint_is_used_within_a_budget(data: Dataset, tmp_path: Path) -> None:
    train(parse(recipe(data, tmp_path / "run", True)), quiet=True)
    settings = {"memory": MEMORY, "backing": str(tmp_path)}
    trainer = Trainer.load(tmp_path / "run", quiet=True, embedding=settings)
    assert set(trainer.model.embedding.tables_on_disk) == {"c0", "c1"}
    expected = Trainer.load(tmp_path / "run", quiet=True)
    assert not expected.model.embedding.tables_on_disk
    assert trainer.evaluate(data.test) == expected.evaluate(data.test)

    options = ["--memory", MEMORY, "--backing", str(tmp_path), "--json"]
    ran = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), f"{data.path}/test", *options])
    assert json.loads(ran.stdout)["auc"] == expected.evaluate(data.test)["auc"]
    exported = [Path(export(source, tmp_path / "repository", "m")) / "tables" for source in (trainer, expected)]
    for file in ("c0/emb_vector", "c1/emb_vector"):
        assert (exported[0] / file).read_bytes() == (exported[1] / file).read_bytes()


def test_python_and_recipe_say_the_same(data: Dataset) -> None:
    settings = {"memory": MEMORY, "ahead": 4}
    embedding = DLRM(data.schema, **MODEL, embedding=settings).embedding
    assert embedding.ahead == 4 and embedding.bytes() <= 100_000
    assert DLRM(data.schema, **MODEL, embedding={"memory": "1 GB"}).embedding.ahead == 0


def test_settings_that_cannot_be(data: Dataset, tmp_path: Path) -> None:
    for settings, words in (
        ({"memory": "much"}, r"embedding: .*memory: 'much'"),
        ({"backing": "/x"}, "`backing` is for tables that exceed `memory`"),
        ({"memory": "1 GB", "ahead": -1}, "embedding.ahead"),
    ):
        with pytest.raises(ConfigError, match=words):
            parse({"embedding": settings})
    values = recipe(data, tmp_path / "run", True)
    with pytest.raises(ConfigError, match="nowhere' is not there"):
        train(parse({**values, "embedding": {"memory": MEMORY, "backing": str(tmp_path / "nowhere")}}), quiet=True)
    with pytest.raises(ConfigError, match=r"table 'c\d': a batch needs [\d,]+ rows in memory at once"):
        train(parse({**values, "batch_size": 1500, "overwrite": True}), quiet=True)
    file = tmp_path / "recipe.yaml"
    file.write_text(parse(values).to_yaml())
    assert load(file) == parse(values)


def test_an_error_on_the_way_ends_training(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training raises what reading ahead met, and leaves no file behind."""
    slice_of = data.train.take if data.train else None
    reads = []

    def take(self: Any, rows: Any) -> Batch:
        reads.append(len(rows))
        if len(reads) == 6:
            raise DataError("part-00000.arrow: damaged")
        assert slice_of is not None
        return slice_of(rows)

    monkeypatch.setattr("lanner.data.split.Split.take", take)
    with pytest.raises(DataError, match="damaged"):
        train(parse(recipe(data, tmp_path / "run", True)), quiet=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "run"]


def test_a_plan_counts_what_is_in_memory() -> None:
    values = {"model": MODEL, "batch_size": 64}
    schema, sizes = train_datasets.schema(2, (10**9, 30)), []
    for embedding in ({}, {"memory": "1 GiB", "backing": "/not/here"}):
        needs = workload(parse({**values, "embedding": embedding}), schema)
        sizes.append(dict(zip(PARTS, needed(needs, Plan.default(needs.tables, 1))[:, 0], strict=True)))
    assert sizes[0]["weights"] == 4 * 4 * (10**9 + 30)
    assert sizes[1]["weights"] + sizes[1]["state"] <= Backing("1 GiB").bytes + 1000
    assert {k: v for k, v in sizes[0].items() if k not in ("weights", "state")} == {
        k: v for k, v in sizes[1].items() if k not in ("weights", "state")
    }
