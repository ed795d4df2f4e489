"""Writes a version of a model repository; see `lanner.export.export`."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from tritonclient.grpc.model_config_pb2 import ModelConfig

from lanner import manifest, storage
from lanner.embedding import persistence
from lanner.errors import ConfigError
from lanner.export import config as configs
from lanner.export.graph import GRAPH
from lanner.export.onnx import to_onnx
from lanner.export.verification import model_without_rows, verify
from lanner.manifest import Manifest
from lanner.models import RankingModel
from lanner.schema import Schema
from lanner.train import Trainer, checkpoint

_BUILDING = ".building-"
_FRESH = 60  # seconds after which an exporter has surely locked the directory it made


def export(
    source: Trainer | str | os.PathLike[str],
    repository: str | os.PathLike[str],
    name: str,
    version: int | None = None,
) -> str:
    """See `lanner.export.export`."""
    target = _Target(repository, name, version)
    if isinstance(source, Trainer):
        return _export_trainer(source, target)
    return _export(checkpoint.resolve(source), target)


@dataclass(frozen=True)
class _Target:
    """Where a version goes."""

    repository: str | os.PathLike[str]
    name: str
    version: int | None

    @property
    def directory(self) -> Path:
        """The model's."""
        return storage.local_path(self.repository) / self.name

    def check(self) -> ModelConfig:
        """The model's settings so far; raises ConfigError where they cannot be read, or the version not be made."""
        if not storage.is_local(self.repository):
            raise ConfigError(f"{os.fspath(self.repository)}: the repository must be a local directory")
        if not self.name or Path(self.name).name != self.name or self.name.startswith("."):
            raise ConfigError(f"name: {self.name!r} cannot name a model; it becomes a directory of the repository")
        if self.version is not None and self.version < 1:
            raise ConfigError(f"version: {self.version}; versions are numbered from 1")
        if self.version is not None and (path := self.directory / str(self.version)).exists():
            raise ConfigError(f"{path} exists; versions are never overwritten")
        return configs.load(self.directory, self.name)


def _export_trainer(trainer: Trainer, target: _Target) -> str:
    """Export what a trainer has now; with several processes, the first writes."""
    processes = trainer.processes
    processes.first(target.check)
    saved = processes.told(lambda: mkdtemp(prefix="lanner-export-"))
    try:
        trainer.save(saved)
        return processes.told(lambda: _export(saved, target))
    finally:
        if processes.is_first:
            shutil.rmtree(saved, ignore_errors=True)


def _export(source: str, target: _Target) -> str:
    directory, config = target.directory, target.check()
    _, schema = checkpoint.open_checkpoint(source)
    model = model_without_rows(source, schema)
    directory.mkdir(parents=True, exist_ok=True)
    with _build_directory(directory) as building:
        _write(model, schema, source, building)
        verify(model, building)
        _finish(building, schema, source)
        published = _publish(building, directory, target.version)
    configs.describe_model(config, schema, max(len(schema.labels), 1))
    storage.write_text(directory / configs.FILE, configs.to_text(config))
    return str(published)


@contextmanager
def _build_directory(directory: Path) -> Iterator[Path]:
    """A directory beside the versions, locked while the block runs and removed when it raises."""
    _remove_abandoned(directory)
    building = Path(mkdtemp(prefix=_BUILDING, dir=directory))
    held = os.open(building, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield building
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    finally:
        os.close(held)


def _remove_abandoned(directory: Path) -> None:
    """Remove what exporters left that were killed: directories that no process holds locked."""
    for path in directory.glob(f"{_BUILDING}*"):
        with suppress(FileNotFoundError):  # published or removed meanwhile
            held = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - path.stat().st_mtime > _FRESH:
                    shutil.rmtree(path, ignore_errors=True)
            except BlockingIOError:
                continue
            finally:
                os.close(held)


def _write(model: RankingModel, schema: Schema, source: str, building: Path) -> None:
    """Write all files but the manifest."""
    (building / GRAPH).write_bytes(to_onnx(model))
    schema.save(building / "schema.yaml")
    for table in schema.tables:
        if table.vocabulary and storage.exists(storage.join(source, table.vocabulary)):
            copy = building / table.vocabulary
            copy.parent.mkdir(parents=True, exist_ok=True)
            with storage.open_file(storage.join(source, table.vocabulary)) as original, copy.open("wb") as file:
                shutil.copyfileobj(original, file, 1 << 22)
    tables = [table.name for table in schema.tables]
    persistence.copy_weights(storage.join(source, checkpoint.TABLES), building / persistence.FOLDER, tables)


def _finish(building: Path, schema: Schema, source: str) -> None:
    files = {name: manifest.entry(building, name) for name in storage.list_files(building)}
    info = {"source": manifest.read(source, checkpoint.KIND).info}
    manifest.write(building, Manifest(kind="repository", fingerprint=schema.fingerprint(), files=files, info=info))


def _publish(building: Path, directory: Path, version: int | None) -> Path:
    """Give the finished directory its number; a number that another export took meanwhile is passed over."""
    building.chmod(0o755)
    while True:
        taken = [int(path.name) for path in directory.iterdir() if path.name.isdigit()]
        target = directory / str(version or max(taken, default=0) + 1)
        try:
            return building.rename(target)  # fails on a directory that is not empty
        except OSError:
            if version is not None or not target.exists():
                raise
