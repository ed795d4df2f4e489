"""Writes a version of a model repository; see `lanner.export.export`."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import numpy as np
import torch

from lanner import manifest, storage
from lanner.data.batch import Bags
from lanner.errors import ConfigError, ExportError
from lanner.export import config as configs
from lanner.export.graph import GRAPH, DenseGraph
from lanner.export.onnx import to_onnx
from lanner.export.tables import load_tables
from lanner.manifest import Manifest
from lanner.models import RankingModel
from lanner.schema import Schema
from lanner.train import Trainer, checkpoint

TOLERANCE = 1e-6
_BUILDING = ".building-"
_FRESH = 60  # seconds after which an exporter has surely locked the directory it made
_SAMPLE = 97  # rows of the random batch that is scored both ways


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
    model = checkpoint.load_model(source)
    with _build_directory(directory) as building:
        outputs = _write(model, source, building)
        verify(model, building)
        _finish(building, model.schema, source)
        published = _publish(building, directory, version)
    configs.describe_model(config, model.schema, outputs)
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


def _write(model: RankingModel, source: str, building: Path) -> int:
    """Write all files but the manifest; returns the number of scores a row."""
    (building / GRAPH).write_bytes(to_onnx(model))
    model.schema.save(building / "schema.yaml")
    for table in model.schema.tables:
        if table.vocabulary and storage.exists(storage.join(source, table.vocabulary)):
            copy = building / table.vocabulary
            copy.parent.mkdir(parents=True, exist_ok=True)
            with storage.open_file(storage.join(source, table.vocabulary)) as original, copy.open("wb") as file:
                shutil.copyfileobj(original, file, 1 << 22)
    model.embedding.embedding_dump(building / "tables")
    return max(len(model.schema.labels), 1)


def verify(model: RankingModel, directory: Path) -> None:
    """Score random rows with the exported files and with the model. Raises ExportError where they differ."""
    dense, bags = random_batch(model.schema, _SAMPLE, np.random.default_rng(0))
    graph, tables = DenseGraph(directory / GRAPH), load_tables(directory / "tables", model.schema)
    with torch.inference_mode():
        none = torch.empty(len(dense), 0)  # bags without features do not know the batch size
        embedded, looked_up = (model.embedding(bags), tables(bags)) if bags.names else (none, none)
        expected = torch.sigmoid(model.head(torch.from_numpy(dense), embedded)).numpy()
        scores = graph(dense, looked_up.numpy())
    if scores.shape != expected.shape:
        raise ExportError(f"the exported graph gives scores of shape {scores.shape}, the model {expected.shape}")
    difference = float(np.abs(scores - expected).max())
    if not difference <= TOLERANCE:  # NaN is a difference too
        raise ExportError(f"exported scores differ from the model's by {difference:g}, allowed are {TOLERANCE:g}")


def random_batch(schema: Schema, count: int, rng: np.random.Generator) -> tuple[np.ndarray, Bags]:
    """Random rows that fit the schema: dense float32 [count, D] and bags, up to 3 ids in a ragged one."""
    dense = rng.standard_normal((count, len(schema.dense)), dtype=np.float32)
    values: list[np.ndarray] = []
    lengths: list[np.ndarray] = []
    for feature in schema.sparse:
        rows = schema.table(feature.table_name).rows
        last = rows if isinstance(rows, int) else 2**63 - 1  # a dynamic table takes any key
        most = min(feature.max_hotness or 3, 3)
        sizes = rng.integers(0, most + 1, count) if feature.hotness is None else np.full(count, feature.hotness)
        lengths.append(sizes)
        values.append(rng.integers(0, last, sizes.sum()))
    names = tuple(feature.name for feature in schema.sparse)
    ids = torch.from_numpy(_joined(values))
    if all(feature.one_hot for feature in schema.sparse):
        return dense, Bags(names, ids)
    return dense, Bags.from_lengths(names, ids, torch.from_numpy(_joined(lengths)))


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


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
