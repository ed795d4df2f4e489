"""What killed exporters left is removed; what living ones build is not."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from lanner.export import export, exporter
from lanner.models import DLRM
from lanner.schema import Schema
from lanner.train import Trainer


def left_behind(directory: Path, name: str, age: float) -> Path:
    path = directory / name
    path.mkdir(parents=True)
    (path / "model.onnx").write_bytes(b"half")
    os.utime(path, (path.stat().st_mtime - age,) * 2)
    return path


def test_only_abandoned_directories_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema.parse({"labels": [{"name": "y"}], "dense": [{"name": "d"}]})
    trainer = Trainer(DLRM(schema, dim=2, bottom=(2,), top=(1,)), quiet=True)
    abandoned = left_behind(tmp_path / "m", ".building-a", 100)
    fresh = left_behind(tmp_path / "m", ".building-b", 0)
    used = left_behind(tmp_path / "m", ".building-c", 1_000_000)
    held = os.open(used, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    export(trainer, tmp_path, "m")
    os.close(held)
    assert not abandoned.exists() and fresh.exists() and used.exists()
    assert (tmp_path / "m" / "1" / "manifest.json").exists()
    monkeypatch.setattr(exporter, "_FRESH", -1)
    export(trainer, tmp_path, "m")
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["1", "2", "config.pbtxt"]
