"""The files of one table, written or read side by side, a block of rows at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import IO, Any

import numpy as np

from lanner import storage
from lanner.embedding.persistence.description import Entry
from lanner.embedding.persistence.layout import DESCRIPTION, Block, Form, row_bytes
from lanner.errors import DataError

BLOCK = 1 << 22  # bytes read at once, over all files


def _digest() -> Any:
    return hashlib.blake2b(digest_size=16)


class Output:
    """Files that appear together, whole, when `close` is called; none of them after an error.

    with Output() as output:
        output.open(directory, names)
        output.append(block)
        entries = output.close()
    """

    def __init__(self) -> None:
        self._files = ExitStack()
        self._open: dict[str, IO[Any]] = {}
        self._digests: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *error: Any) -> None:
        self._files.__exit__(*error)

    def open(self, directory: str, names: Iterable[str]) -> None:
        """Begin the files called `names`, empty."""
        for name in names:
            self._open[name] = self._files.enter_context(storage.publish(storage.join(directory, name)))
            self._digests[name], self._sizes[name] = _digest(), 0

    def append(self, block: Block) -> None:
        """Write rows at the end of their files."""
        for name, values in block.items():
            data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
            self._open[name].write(data)
            self._digests[name].update(data)
            self._sizes[name] += data.nbytes

    def close(self) -> dict[str, Entry]:
        """Publish the files; their sizes and checksums."""
        self._files.close()
        return {n: Entry(size=self._sizes[n], checksum=d.hexdigest()) for n, d in self._digests.items()}


def clear(directory: str) -> None:
    """Make an empty directory for a table. What a killed writer left there never looks finished."""
    storage.make_directory(directory)
    storage.remove(storage.join(directory, DESCRIPTION))
    storage.remove_unpublished(directory)
    for name in storage.list_files(directory):
        if name.split(".")[0] in ("key", "emb_vector", "slot_id", "state", "meta", "waiting", "deleted"):
            storage.remove(storage.join(directory, name))


def blocks(where: str, directory: str, form: Form, entries: Mapping[str, Entry]) -> Iterator[Block]:
    """The rows in the files of `form`; raises DataError at the end when a checksum differs."""
    step = max(BLOCK // sum(row_bytes(form, name) for name in form), 1)
    with ExitStack() as stack:
        opened = {name: stack.enter_context(storage.open_file(storage.join(directory, name))) for name in form}
        digests = {name: _digest() for name in form}
        while True:
            block = {name: _read(opened[name], digests[name], step, *form[name]) for name in form}
            if any(len(values) for values in block.values()):
                yield block
            else:
                break
    for name, digest in digests.items():
        if digest.hexdigest() != entries[name].checksum:
            raise DataError(f"{where}: {name} is damaged: its checksum differs from {DESCRIPTION}")


def _read(file: IO[Any], digest: Any, rows: int, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Up to so many rows."""
    values = np.empty((rows, *shape), kind)
    free, size = values.reshape(-1).view(np.uint8).data, 0
    while size < len(free) and (count := file.readinto(free[size:])):  # type: ignore[attr-defined]
        size += count
    digest.update(free[:size])
    whole: np.ndarray = values[: size * rows // len(free)]
    return whole


def read_whole(where: str, directory: str, form: Form, entries: Mapping[str, Entry]) -> Block:
    """All rows of the files of `form`, at once; see `blocks`."""
    parts = [{name: np.empty((0, *shape), kind) for name, (shape, kind) in form.items()}]
    parts += blocks(where, directory, form, entries)
    return {name: np.concatenate([part[name] for part in parts]) for name in form}


def check_sizes(where: str, directory: str, form: Form, entries: Mapping[str, Entry], rows: int) -> None:
    """Raise DataError unless every file of `form` is there with so many rows."""
    for name in form:
        uri = storage.join(directory, name)
        if name not in entries or not storage.exists(uri):
            waived = "; pass optimizer_state=False to load without state" if name.startswith("state.") else ""
            raise DataError(f"{where}: {name} is missing{waived}")
        seen, width = storage.size(uri), row_bytes(form, name)
        if seen != rows * width or entries[name].size != seen:
            held = f" ({seen // width:,} rows, expected {rows:,})" if seen % width == 0 else ""
            raise DataError(f"{where}: {name} has {seen} bytes, expected {rows * width}{held}")


def check_keys(where: str, keys: np.ndarray, last: int | None, rows: int | None) -> int:
    """The last of some keys; `last` is the key before them, None for none.

    Raises DataError unless the keys rise or, where `rows` is given, count the rows 0..rows-1 in order.
    """
    if rows is not None:
        begin = 0 if last is None else last + 1
        if not np.array_equal(keys, np.arange(begin, begin + len(keys))):
            raise DataError(f"{where}: key does not count the rows 0..{rows - 1} in order")
    elif (keys[1:] <= keys[:-1]).any() or (last is not None and keys[0] <= last):
        raise DataError(f"{where}: the keys in key do not rise")
    return int(keys[-1])
