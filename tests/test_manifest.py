"""A directory counts as finished only with its manifest, and must hold what the manifest says."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanner import manifest
from lanner.errors import DataError
from lanner.manifest import Manifest


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "part").write_bytes(b"12345")
    files = {"part": manifest.entry(tmp_path, "part", rows=5)}
    manifest.write(tmp_path, Manifest(kind="dataset", fingerprint="f", files=files, info={"seed": 1}))
    return tmp_path


def test_written_and_read_again(directory: Path) -> None:
    found = manifest.read(directory, "dataset")
    assert (found.kind, found.fingerprint, found.info) == ("dataset", "f", {"seed": 1})
    assert (found.files["part"].size, found.files["part"].rows) == (5, 5)
    manifest.verify(directory, found, checksums=True)


def test_unfinished_malformed_and_foreign_directories_are_refused(directory: Path) -> None:
    with pytest.raises(DataError, match="this is a dataset, expected a checkpoint"):
        manifest.read(directory, "checkpoint")
    for text in ("{", "[]", '{"kind": "dataset"}', "\x00"):
        (directory / manifest.NAME).write_text(text)
        with pytest.raises(DataError, match=r"manifest\.json: not a valid manifest"):
            manifest.read(directory, "dataset")
    (directory / manifest.NAME).unlink()
    with pytest.raises(DataError, match=r"no manifest\.json: not a finished dataset"):
        manifest.read(directory, "dataset")


def test_files_that_differ_are_named(directory: Path) -> None:
    found = manifest.read(directory, "dataset")
    (directory / "part").write_bytes(b"12346")
    manifest.verify(directory, found)
    with pytest.raises(DataError, match="part: checksum"):
        manifest.verify(directory, found, checksums=True)
    (directory / "part").write_bytes(b"1234")
    with pytest.raises(DataError, match="part: 4 bytes, the manifest says 5"):
        manifest.verify(directory, found)
    (directory / "part").unlink()
    with pytest.raises(DataError, match="part: listed in the manifest but missing"):
        manifest.verify(directory, found)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such directory"):
        manifest.read(tmp_path / "nowhere", "dataset")
