"""HugeCTR's file lists: a line with the number of files, then a path a line; and the folders of splits."""

from __future__ import annotations

from collections.abc import Sequence

from lanner import storage
from lanner.errors import DataError

NAMES = ("_file_list.txt", "file_list.txt")
FOLDERS = {"train": ("train",), "valid": ("valid", "val", "validation"), "test": ("test",)}
"""Folders that hold a split, and the names they may have; ours are the first."""


def is_list(uri: str) -> bool:
    """Whether `uri` has the name of a file list."""
    return uri.endswith(".txt")


def list_in(folder: str) -> str | None:
    """The file list of a folder; None where it has none."""
    return next((path for name in NAMES if storage.exists(path := storage.join(folder, name))), None)


def split_folders(uri: str, marker: Sequence[str]) -> dict[str, str]:
    """The folders of the splits below `uri` that hold a file called like one of `marker`, by split."""
    found = {}
    for split, names in FOLDERS.items():
        folders = (storage.join(uri, name) for name in names)
        for folder in folders:
            if split not in found and any(storage.exists(storage.join(folder, name)) for name in marker):
                found[split] = folder
    return found


def read_list(uri: str) -> list[str]:
    """The files that a list names. Paths that are not there as given are looked for beside the list.

    Raises DataError naming the list where its count is wrong, and the file that is nowhere.
    """
    lines = [line.strip() for line in storage.read_text(uri).splitlines() if line.strip()]
    if not lines or not lines[0].isdigit():
        raise DataError(f"{uri}: the first line is {lines[0] if lines else ''!r}, expected the number of files")
    if int(lines[0]) != len(lines) - 1:
        raise DataError(f"{uri}: says {lines[0]} files, names {len(lines) - 1}")
    return [_found(uri, path) for path in lines[1:]]


def _found(uri: str, path: str) -> str:
    folder = uri.rpartition("/")[0] or "."
    for place in (path, storage.join(folder, path), storage.join(folder, path.rpartition("/")[2])):
        if storage.exists(place):
            return place
    raise DataError(f"{uri}: names {path!r}, which is neither there nor beside the list")


def write_list(uri: str, files: Sequence[str]) -> None:
    """Publish a list of `files`, whose paths HugeCTR takes as they are, relative to the working directory."""
    storage.write_text(uri, "\n".join([str(len(files)), *files]) + "\n")
