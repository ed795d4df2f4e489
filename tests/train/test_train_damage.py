"""Damaged checkpoints and model versions are refused, whichever file is at fault."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from lanner.data import Dataset
from lanner.errors import DataError
from lanner.export import export
from lanner.models import DLRM
from lanner.prep import prepare
from lanner.serve.model import ServedModel
from lanner.train import Trainer, checkpoint
from lanner.train.evaluation import evaluate_checkpoint

SMALL_FILES = ("dense.safetensors", "dense_optimizer.safetensors", "trainer.json", "recipe.yaml", "schema.yaml")
TABLE_FILES = ("tables/C1/table.json", "tables/C1/key", "tables/C1/emb_vector", "tables/C1/state.sum")


@dataclass
class Made:
    """A dataset, and a checkpoint and a model version made from it."""

    dataset: Dataset
    checkpoint: Path
    version: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("damage")
    lines = (f"{k % 2}\t{k}\t{k % 3:08x}\t{k % 4 // 2 * 7:08x}\t{k % 3:08x}" for k in range(90))
    (folder / "logs.tsv").write_text("\n".join(lines) + "\n")
    prepare(folder / "logs.tsv", folder / "data", min_count=1, numeric=1, categorical=3, quiet=True)
    dataset = Dataset.open(folder / "data")
    trainer = Trainer(DLRM(dataset.schema, dim=4, bottom=(4,), top=(1,)), batch_size=16, quiet=True)
    trainer.fit(dataset.train)
    trainer.save(folder / "checkpoint")
    return Made(dataset, folder / "checkpoint", Path(export(folder / "checkpoint", folder / "repository", "m")))


def flipped(source: Path, name: str, to: Path) -> Path:
    """A copy of `source` with one bit of the file `name` turned."""
    shutil.copytree(source, to)
    data = bytearray((to / name).read_bytes())
    data[len(data) // 2] ^= 1
    (to / name).write_bytes(data)
    return to


def message(name: str) -> str:
    file = name.rpartition("/")[2]
    return rf"{file}: checksum \w+, the manifest says|{file} .*(its checksum differs|does not count the rows)"


def new_trainer(dataset: Dataset) -> Trainer:
    return Trainer(DLRM(dataset.schema, dim=4, bottom=(4,), top=(1,), seed=5), batch_size=16, quiet=True)


@pytest.mark.parametrize("name", [*SMALL_FILES, *TABLE_FILES, "vocab/C1.parquet"])
def test_a_damaged_checkpoint_is_refused_by_all_that_read_it(made: Made, tmp_path: Path, name: str) -> None:
    path = flipped(made.checkpoint, name, tmp_path / "bad")
    with pytest.raises(DataError, match=message(name)):
        new_trainer(made.dataset).resume(path)
    if "state" in name:
        return  # only training reads it
    with pytest.raises(DataError, match=message(name)):
        evaluate_checkpoint(str(path), str(Path(made.dataset.path) / "test"), quiet=True)
    with pytest.raises(DataError, match=message(name)):
        new_trainer(made.dataset).load_weights(path)
    with pytest.raises(DataError, match=message(name)):
        export(path, tmp_path / "repository", "m")
    assert not list((tmp_path / "repository").glob("m/*"))


@pytest.mark.parametrize("name", ["model.onnx", "schema.yaml", "vocab/C1.parquet", *TABLE_FILES[:3]])
def test_a_damaged_version_is_not_served(made: Made, tmp_path: Path, name: str) -> None:
    path = flipped(made.version, name, tmp_path / "1")
    with pytest.raises(DataError, match=message(name)):
        ServedModel(path)


def swap(folder: Path) -> None:
    """C1 and C3 have the same values, so the same rows and sizes."""
    (folder / "C1").rename(folder / "other")
    (folder / "C3").rename(folder / "C1")
    (folder / "other").rename(folder / "C3")


def test_tables_in_each_others_place_are_refused(made: Made, tmp_path: Path) -> None:
    for source in (made.checkpoint, made.version):
        swap(shutil.copytree(source, tmp_path / source.name) / "tables")
    with pytest.raises(DataError, match=r"tables/C1/table.json: checksum"):
        checkpoint.load_model(tmp_path / made.checkpoint.name)
    with pytest.raises(DataError, match=r"tables/C1/table.json: checksum"):
        ServedModel(tmp_path / made.version.name)
    model = checkpoint.load_model(made.checkpoint)
    with pytest.raises(DataError, match=r"'C1' in .*table.json is that of table 'C3'"):
        model.embedding.embedding_load(tmp_path / made.checkpoint.name / "tables")
