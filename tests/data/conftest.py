"""The fixture that writes datasets; also makes the helpers beside these tests importable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from dataset_files import MakeDataset, Table, write_file

from lanner import manifest, prep
from lanner.manifest import Manifest
from lanner.schema import Schema


@pytest.fixture
def make_dataset(tmp_path: Path) -> MakeDataset:
    """Writes a dataset from {"train/part-00000.arrow": columns, ...} and finishes it with its manifest."""

    def make(schema: Schema, files: dict[str, Table], name: str = "dataset", batch_rows: int = 1000) -> Path:
        root = tmp_path / name
        root.mkdir()
        schema.save(root / "schema.yaml")
        for file, columns in files.items():
            write_file(root / file, columns, batch_rows)
        entries = {file: manifest.entry(root, file, len(columns["label"])) for file, columns in files.items()}
        manifest.write(root, Manifest(kind="dataset", fingerprint=schema.fingerprint(), files=entries))
        return root

    return make


@pytest.fixture(scope="session")
def criteo(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of the 10,000 real Criteo rows with all three splits; its numbers are float16."""
    out = tmp_path_factory.mktemp("criteo") / "dataset"
    file = str(shared_data / "criteo_kaggle_10k.tsv.gz")
    prep(file, out=out, min_count=2, valid=1000, test=1001, dense_type="float16", quiet=True)
    return out
