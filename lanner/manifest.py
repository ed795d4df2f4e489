"""`manifest.json`: written last into a directory that matters; a directory without one is unfinished and refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from lanner import storage
from lanner.errors import DataError

NAME = "manifest.json"


class FileEntry(BaseModel):
    """One file of the directory: its size in bytes, BLAKE2b-128 checksum and, where it holds rows, their number."""

    model_config = ConfigDict(extra="forbid")
    size: int
    checksum: str
    rows: int | None = None


class Manifest(BaseModel):
    """What a finished directory holds: `files` by relative path, the schema's fingerprint, and free `info`."""

    model_config = ConfigDict(extra="forbid")
    kind: str  # dataset, checkpoint, repository
    format: int = 1
    fingerprint: str
    files: dict[str, FileEntry]
    info: dict[str, Any] = {}


def entry(directory: str | os.PathLike[str], name: str, rows: int | None = None) -> FileEntry:
    """Measure the file `name` of `directory`."""
    path = storage.join(directory, name)
    return FileEntry(size=storage.size(path), checksum=storage.checksum(path), rows=rows)


def write(directory: str | os.PathLike[str], manifest: Manifest) -> None:
    """Publish `manifest`, which declares `directory` finished."""
    storage.write_text(storage.join(directory, NAME), manifest.model_dump_json(indent=2) + "\n")


def read(directory: str | os.PathLike[str], kind: str) -> Manifest:
    """Read the manifest of a finished directory of `kind`.

    Raises DataError when there is no such directory, when it has none (unfinished), when it is malformed, or when it
    is of another kind.
    """
    path = storage.join(directory, NAME)
    if not storage.exists(path):
        if not storage.is_directory(directory):
            raise DataError(f"{os.fspath(directory)}: no such directory")
        raise DataError(f"{directory}: no {NAME}: not a finished {kind} (its writer did not get to the end)")
    try:
        manifest = Manifest.model_validate(json.loads(storage.read_text(path)))
    except (ValueError, ValidationError) as error:
        raise DataError(f"{path}: not a valid manifest: {error}") from error
    if manifest.kind != kind:
        raise DataError(f"{path}: this is a {manifest.kind}, expected a {kind}")
    return manifest


def verify(
    directory: str | os.PathLike[str], manifest: Manifest, checksums: bool | Callable[[str], bool] = False
) -> None:
    """Check that every listed file is there with its size, and its checksum, which reads every byte.

    `checksums` may choose by relative path which files are read. Raises DataError naming the first file that differs.
    """
    chosen = checksums if callable(checksums) else lambda _: checksums
    for name, expected in manifest.files.items():
        path = storage.join(directory, name)
        if not storage.exists(path):
            raise DataError(f"{path}: listed in the manifest but missing")
        if (seen := storage.size(path)) != expected.size:
            raise DataError(f"{path}: {seen} bytes, the manifest says {expected.size}")
        if chosen(name) and (digest := storage.checksum(path)) != expected.checksum:
            raise DataError(f"{path}: checksum {digest}, the manifest says {expected.checksum}")
