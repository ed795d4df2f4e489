"""Tables in files, in the layout HugeCTR and its parameter server also read.

    <path>/<table>/key            int64 little-endian: the keys (row numbers, for a static table)
    <path>/<table>/emb_vector     float32 little-endian [rows, dim], in the order of the keys
    <path>/<table>/state.<name>   float32, one file for each optimizer state, in the same order
    <path>/<table>/table.json     written last: rows, dim, optimizer, steps, sizes and checksums

`path` is any URI. A table without `table.json` is unfinished and refused. Blocks are streamed; nothing is held twice.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from lanner import storage
from lanner.embedding import optimizers
from lanner.errors import DataError

if TYPE_CHECKING:
    from lanner.embedding.collection import EmbeddingCollection

DESCRIPTION = "table.json"
FOLDER = "tables"
"""Where checkpoints and model versions keep their dump."""
_FORMAT = 1
_BLOCK = 1 << 22  # bytes read or written at once


def dump(
    collection: EmbeddingCollection, path: str | os.PathLike[str], table_names: Sequence[str] | None = None
) -> None:
    """Write the tables called `table_names` (default: all), weights and optimizer state."""
    for name in _chosen(collection, table_names):
        directory = storage.join(path, name)
        storage.make_directory(directory)
        storage.remove(storage.join(directory, DESCRIPTION))  # an interrupted overwrite must not look finished
        weight, state = collection.weight(name), collection.state(name)
        files = {"key": _write(storage.join(directory, "key"), _keys(weight.shape[0]))}
        for file, tensor in (("emb_vector", weight), *((f"state.{key}", value) for key, value in state.items())):
            files[file] = _write(storage.join(directory, file), _blocks(_bytes(tensor)))
        description = {
            "format": _FORMAT,
            "table": name,
            "rows": weight.shape[0],
            "dim": weight.shape[1],
            "dtype": "float32",
            "optimizer": optimizers.describe(collection.table_optimizer(name)),
            "steps": collection.steps,
            "files": files,
        }
        storage.write_text(storage.join(directory, DESCRIPTION), json.dumps(description, indent=2) + "\n")


def needs_checksum(name: str) -> bool:
    """Whether the file `name` of a directory with a dump in FOLDER is to be checked by the directory's manifest.

    Not so the tables' big files: `load` checks them as it reads them, by the checksums in their `table.json`.
    """
    return not name.startswith(f"{FOLDER}/") or name.endswith(f"/{DESCRIPTION}")


def load(
    collection: EmbeddingCollection,
    path: str | os.PathLike[str],
    table_names: Sequence[str] | None = None,
    optimizer_state: bool = True,
) -> None:
    """Read the tables called `table_names` (default: all) that `dump` wrote.

    With `optimizer_state` the state is read too, and `steps` set; a dump by another optimizer, or without the
    state's files, is an error. Without, state is left as it is. Raises DataError naming the table where anything is
    missing or differs in rows, width, size or checksum: all descriptions and sizes are checked before any table is
    changed, checksums as each file is read.
    """
    names = _chosen(collection, table_names)
    descriptions = {name: _describe(collection, path, name, optimizer_state) for name in names}
    for name in names:
        directory, files = storage.join(path, name), descriptions[name]["files"]
        _verify_keys(name, directory, files["key"], collection.weight(name).shape[0])
        _read(name, directory, "emb_vector", files["emb_vector"], _bytes(collection.weight(name)))
        if optimizer_state:
            for key, value in collection.state(name).items():
                _read(name, directory, f"state.{key}", files[f"state.{key}"], _bytes(value))
    if optimizer_state and names:
        collection.steps = max(int(description["steps"]) for description in descriptions.values())


def _chosen(collection: EmbeddingCollection, table_names: Sequence[str] | None) -> list[str]:
    known = [table.name for table in collection.tables]
    for name in table_names or ():
        if name not in known:
            raise DataError(f"there is no table {name!r} to store or load; there are {', '.join(known)}")
    chosen = known if table_names is None else list(table_names)
    for table in collection.tables:
        if table.name in chosen and table.rows == "dynamic":
            raise DataError(f"table {table.name!r}: dynamic tables cannot be dumped or loaded yet")
    return chosen


def _bytes(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The memory of a contiguous float32 tensor, as bytes."""
    return tensor.detach().numpy().reshape(-1).view(np.uint8)


def _blocks(data: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    for at in range(0, data.size, _BLOCK):
        yield data[at : at + _BLOCK]


def _keys(rows: int) -> Iterator[np.ndarray[Any, Any]]:
    step = _BLOCK // 8
    for at in range(0, rows, step):
        yield np.arange(at, min(at + step, rows), dtype="<i8").view(np.uint8)


def _write(uri: str, blocks: Iterator[np.ndarray[Any, Any]]) -> dict[str, Any]:
    """Publish a file; its size and checksum."""
    digest, size = hashlib.blake2b(digest_size=16), 0
    with storage.publish(uri) as file:
        for block in blocks:
            file.write(block.data)
            digest.update(block.data)
            size += block.size
    return {"size": size, "checksum": digest.hexdigest()}


def _describe(
    collection: EmbeddingCollection, path: str | os.PathLike[str], name: str, optimizer_state: bool
) -> dict[str, Any]:
    """The description of a stored table, checked against the collection and the sizes of its files."""
    directory = storage.join(path, name)
    where, uri = f"table {name!r} in {os.fspath(path)}", storage.join(directory, DESCRIPTION)
    if not storage.exists(uri):
        raise DataError(f"{where}: no {DESCRIPTION}: not a finished dump")
    try:
        description: dict[str, Any] = json.loads(storage.read_text(uri))
        stored = {key: description[key] for key in ("format", "rows", "dim", "dtype")}
        files, optimizer = description["files"], description["optimizer"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{where}: {DESCRIPTION} is not valid: {error!r}") from error
    if (own_name := description.get("table", name)) != name:  # dumps of before the name was kept have none
        raise DataError(f"{where}: {DESCRIPTION} is that of table {own_name!r}")
    rows, dim = collection.weight(name).shape
    for key, expected in {"format": _FORMAT, "rows": rows, "dim": dim, "dtype": "float32"}.items():
        if stored[key] != expected:
            raise DataError(f"{where}: {key} is {stored[key]!r}, the model expects {expected!r}")
    expected_sizes = {"key": rows * 8, "emb_vector": rows * dim * 4}
    if optimizer_state:
        own = optimizers.describe(collection.table_optimizer(name))["name"]
        if optimizer["name"] != own:
            raise DataError(
                f"{where}: stored with the state of optimizer {optimizer['name']}, the model uses {own}; "
                "pass optimizer_state=False to load the weights alone"
            )
        expected_sizes |= {f"state.{key}": value.numel() * 4 for key, value in collection.state(name).items()}
    for file, size in expected_sizes.items():
        _check_size(where, directory, file, files, size)
    return description


def _check_size(where: str, directory: str, file: str, files: dict[str, Any], size: int) -> None:
    uri = storage.join(directory, file)
    if file not in files or not storage.exists(uri):
        hint = "; pass optimizer_state=False to load without state" if file.startswith("state.") else ""
        raise DataError(f"{where}: {file} is missing{hint}")
    if (seen := storage.size(uri)) != size or files[file]["size"] != size:
        raise DataError(f"{where}: {file} has {seen} bytes, expected {size}")


def _stream(name: str, directory: str, file: str, entry: dict[str, Any]) -> Iterator[bytes]:
    """The blocks of a stored file; raises DataError at the end when the checksum differs."""
    digest = hashlib.blake2b(digest_size=16)
    with storage.open_file(storage.join(directory, file)) as opened:
        while block := opened.read(_BLOCK):
            digest.update(block)
            yield block
    if digest.hexdigest() != entry["checksum"]:
        raise DataError(f"table {name!r}: {file} in {directory} is damaged: its checksum differs from {DESCRIPTION}")


def _verify_keys(name: str, directory: str, entry: dict[str, Any], rows: int) -> None:
    """A static table's keys must be 0, 1, 2, ..."""
    at = 0
    for block in _stream(name, directory, "key", entry):
        keys = np.frombuffer(block, "<i8")
        if not np.array_equal(keys, np.arange(at, at + keys.size)):
            raise DataError(f"table {name!r}: key in {directory} does not count the rows 0..{rows - 1} in order")
        at += keys.size


def _read(name: str, directory: str, file: str, entry: dict[str, Any], into: np.ndarray[Any, Any]) -> None:
    at = 0
    for block in _stream(name, directory, file, entry):
        into[at : at + len(block)] = np.frombuffer(block, np.uint8)
        at += len(block)
