"""The fixture that writes datasets; also makes the helpers beside these tests importable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from dataset_files import MakeDataset, Table, write_file

from lanner import manifest
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
