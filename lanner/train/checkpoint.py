"""Checkpoints: a directory with everything a run needs to go on, or a model needs to be exported.

dense.safetensors             weights and buffers outside the embeddings
dense_optimizer.safetensors   their optimizer's state
tables/<name>/                rows by key with their optimizer state
schema.yaml, vocab/           what ids mean
recipe.yaml                   the model's name and hyperparameters, its tables' and the training settings
trainer.json                  step, epoch, place in the epoch, random generators
manifest.json                 written last: a directory without it is unfinished and ignored
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import safetensors.torch
import yaml
from torch import Tensor

from lanner import manifest as manifests
from lanner import storage
from lanner.embedding import persistence
from lanner.errors import DataError
from lanner.manifest import Manifest
from lanner.models import RankingModel, build
from lanner.schema import Schema
from lanner.train.processes import Processes
from lanner.train.run_directory import RunDirectory

KIND = "checkpoint"
TABLES = persistence.FOLDER


@dataclass(frozen=True)
class Contents:
    """What goes into a checkpoint beside the model."""

    optimizer: dict[str, Tensor]
    trainer: dict[str, Any]
    recipe: dict[str, Any]
    dataset: str | None = None  # directory whose vocabularies are copied


def save(path: str | os.PathLike[str], model: RankingModel, contents: Contents) -> None:
    """Write a checkpoint directory; whatever an interrupted writer left at `path` is removed first.

    With several processes all must call it, and the first writes.
    """
    processes = Processes(model.embedding.wire)
    processes.first(lambda: _empty(path))
    model.embedding.embedding_dump(storage.join(path, TABLES))
    processes.first(lambda: _complete(path, model, contents))


def _empty(path: str | os.PathLike[str]) -> None:
    storage.remove(path)
    storage.make_directory(path)


def _complete(path: str | os.PathLike[str], model: RankingModel, contents: Contents) -> None:
    """Write what stands beside the tables, and last the manifest."""
    write_tensors(storage.join(path, "dense.safetensors"), dense_state(model))
    write_tensors(storage.join(path, "dense_optimizer.safetensors"), contents.optimizer)
    model.schema.save(storage.join(path, "schema.yaml"))
    _copy_vocabularies(path, model.schema, contents.dataset)
    storage.write_text(storage.join(path, "recipe.yaml"), yaml.safe_dump(contents.recipe, sort_keys=False))
    storage.write_text(storage.join(path, "trainer.json"), json.dumps(contents.trainer, indent=2) + "\n")
    files = {name: manifests.entry(path, name) for name in storage.list_files(path) if name != manifests.NAME}
    info = {"step": contents.trainer.get("step", 0), "model": contents.recipe["model"]["name"]}
    manifests.write(path, Manifest(kind=KIND, fingerprint=model.schema.fingerprint(), files=files, info=info))


def open_checkpoint(path: str | os.PathLike[str]) -> tuple[Manifest, Schema]:
    """Manifest and schema of a finished checkpoint, its files checked by size and checksum.

    The checksums of the tables' big files are left to `load_weights`, which reads them. Raises DataError, SchemaError.
    """
    manifest = manifests.read(path, KIND)
    manifests.verify(path, manifest, checksums=persistence.needs_checksum)
    schema = Schema.load(storage.join(path, "schema.yaml"))
    if schema.fingerprint() != manifest.fingerprint:
        raise DataError(f"{path}: schema.yaml was changed after the checkpoint was written")
    return manifest, schema


def load_model(path: str | os.PathLike[str], embedding: Mapping[str, Any] | None = None) -> RankingModel:
    """The model of a checkpoint or run directory with its weights, in evaluation mode, without optimizer state.

    `embedding` holds what this process alone wants of a recipe's section `embedding`, such as `memory` and `backing`.
    """
    path = resolve(path)
    _, schema = open_checkpoint(path)
    return restore(path, schema, embedding)


def restore(path: str | os.PathLike[str], schema: Schema, embedding: Mapping[str, Any] | None = None) -> RankingModel:
    """`load_model` of a checkpoint that `open_checkpoint` has checked and given the schema of."""
    recipe = read_recipe(path)
    hyperparameters = dict(recipe["model"])
    settings = {**(embedding or {}), **(recipe.get("embedding") or {})}
    model = build(hyperparameters.pop("name"), schema, settings, **hyperparameters)
    load_weights(path, model)
    return model.eval()


def restore_dense(path: str | os.PathLike[str], schema: Schema, embedding: Mapping[str, Any]) -> RankingModel:
    """The model of a checkpoint with the tables that `schema` and `embedding` give it, whose rows are not loaded."""
    hyperparameters = dict(read_recipe(path)["model"])
    model = build(hyperparameters.pop("name"), schema, embedding, **hyperparameters)
    _load_dense(path, model)
    return model.eval()


def load_weights(path: str | os.PathLike[str], model: RankingModel, optimizer_state: bool = False) -> None:
    """Load dense weights and tables into `model`, with the tables' optimizer state where that is wanted.

    Raises DataError naming what is missing or does not fit.
    """
    _load_dense(path, model)
    model.embedding.embedding_load(storage.join(path, TABLES), optimizer_state=optimizer_state)


def _load_dense(path: str | os.PathLike[str], model: RankingModel) -> None:
    tensors = read_tensors(storage.join(path, "dense.safetensors"))
    expected = dense_state(model)
    for name in dict.fromkeys((*expected, *tensors)):
        if name not in tensors or name not in expected:
            where = "the model" if name in tensors else "the file"
            raise DataError(f"{path}/dense.safetensors: {name!r} is missing in {where}")
        if tensors[name].shape != expected[name].shape:
            shapes = f"{tuple(tensors[name].shape)}, expected {tuple(expected[name].shape)}"
            raise DataError(f"{path}/dense.safetensors: {name!r} has shape {shapes}")
    model.load_state_dict(tensors, strict=False)


def read_recipe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """`recipe.yaml` of a checkpoint."""
    values: dict[str, Any] = yaml.safe_load(storage.read_text(storage.join(path, "recipe.yaml")))
    if decay := values.pop("weight_decay", 0.0):  # from before each optimizer had its own
        values["dense_optimizer"]["weight_decay"] = decay
    return values


def read_trainer(path: str | os.PathLike[str]) -> dict[str, Any]:
    """`trainer.json` of a checkpoint."""
    values: dict[str, Any] = json.loads(storage.read_text(storage.join(path, "trainer.json")))
    return values


def dense_state(model: RankingModel) -> dict[str, Tensor]:
    """Weights and buffers outside the embeddings, by name."""
    return {name: t for name, t in model.state_dict().items() if not name.startswith("embedding.")}


def resolve(path: str | os.PathLike[str]) -> str:
    """The checkpoint meant by `path`: itself, or a run directory's best, else its last.

    Raises DataError when there is none.
    """
    if storage.exists(storage.join(path, manifests.NAME)):
        return os.fspath(path)
    run = RunDirectory(path)
    return run.best() or _required(run.last(), path)


def latest(path: str | os.PathLike[str]) -> str:
    """The checkpoint to go on from: `path` itself, or a run directory's last. Raises DataError when there is none."""
    if storage.exists(storage.join(path, manifests.NAME)):
        return os.fspath(path)
    return _required(RunDirectory(path).last(), path)


def _required(found: str | None, path: str | os.PathLike[str]) -> str:
    if found is None and not storage.is_directory(path):
        raise DataError(f"{path}: no such directory")
    if found is None:
        raise DataError(f"{path}: neither a checkpoint nor a run directory with a finished one")
    return found


def write_tensors(path: str, tensors: dict[str, Tensor]) -> None:
    """Publish `tensors` as a safetensors file."""
    data = safetensors.torch.save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()})
    with storage.publish(path) as file:
        file.write(data)


def read_tensors(path: str) -> dict[str, Tensor]:
    """Read a safetensors file."""
    with storage.open_file(path) as file:
        return safetensors.torch.load(file.read())


def _copy_vocabularies(path: str | os.PathLike[str], schema: Schema, dataset: str | None) -> None:
    for table in schema.tables:
        if dataset is None or table.vocabulary is None:
            continue
        source = storage.join(dataset, table.vocabulary)
        with storage.open_file(source) as original, storage.publish(storage.join(path, table.vocabulary)) as copy:
            shutil.copyfileobj(original, copy, 1 << 22)
