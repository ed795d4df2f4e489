"""Writes a version of a model repository; see `lanner.export.export`."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

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
    directory = _directory(repository, name)
    if version is not None and version < 1:
        raise ConfigError(f"version: {version}; versions are numbered from 1")
    if version is not None and (directory / str(version)).exists():
        raise ConfigError(f"{directory / str(version)} exists; versions are never overwritten")
    if isinstance(source, Trainer):
        with TemporaryDirectory(prefix="lanner-export-") as saved:
            source.save(saved)
            return _export(saved, directory, name, version)
    return _export(checkpoint.resolve(source), directory, name, version)


def _directory(repository: str | os.PathLike[str], name: str) -> Path:
    if not storage.is_local(repository):
        raise ConfigError(f"{os.fspath(repository)}: the repository must be a local directory")
    if not name or Path(name).name != name or name.startswith("."):
        raise ConfigError(f"name: {name!r} cannot name a model; it becomes a directory of the repository")
    directory = storage.local_path(repository) / name
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _export(source: str, directory: Path, name: str, version: int | None) -> str:
    config = configs.load(directory, name)  # a config.pbtxt that cannot be read is found before the work
    _, schema = checkpoint.open_checkpoint(source)
    model = model_without_rows(source, schema)
    with _build_directory(directory) as building:
        _write(model, schema, source, building)
        verify(model, building)
        _finish(building, schema, source)
        published = _publish(building, directory, version)
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
