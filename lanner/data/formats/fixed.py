"""Files of rows of one size without a header: measured, and read some rows at a time."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np

from lanner import storage
from lanner.data.formats.base import BLOCK_ROWS, Array
from lanner.errors import DataError

_SKIP = 1 << 20


@dataclass(frozen=True, slots=True)
class FixedRows:
    """`rows` rows of `width` elements of type `dtype` from byte `start` of the file `uri` on.

    `member` names a compressed member of the zip archive `uri`, within which `start` counts then.
    """

    uri: str
    dtype: np.dtype[Any]
    width: int
    rows: int
    start: int = 0
    member: str = ""

    @staticmethod
    def whole(uri: str, dtype: Any, width: int) -> FixedRows:
        """The whole file; raises DataError naming it where its size is no whole number of rows, or it is not there."""
        kind = np.dtype(dtype)
        if not storage.exists(uri):
            raise DataError(f"{uri}: no such file")
        size, row = storage.size(uri), kind.itemsize * width
        if size % row:
            raise DataError(f"{uri}: {size} bytes are no whole number of rows of {row} bytes ({size % row} left over)")
        return FixedRows(uri, kind, width, size // row)

    def part(self, first: int, rows: int) -> FixedRows:
        """Some of the rows."""
        return replace(self, start=self.start + first * self.dtype.itemsize * self.width, rows=rows)

    def open(self, opened: ExitStack) -> IO[bytes]:
        """A file to `read` from, which `opened` closes."""
        file = opened.enter_context(storage.open_file(self.uri))
        if not self.member:
            return file
        member = opened.enter_context(opened.enter_context(zipfile.ZipFile(file)).open(self.member))
        left = self.start
        while left and (skipped := member.read(min(left, _SKIP))):
            left -= len(skipped)
        return member

    def load(self) -> Array:
        """All rows [rows, width]."""
        with ExitStack() as opened:
            return self.read(self.open(opened), 0, self.rows)

    def read(self, file: IO[bytes], first: int, count: int) -> Array:
        """`count` rows [count, width] from `first` on, of a file that `open` gave; of a member always the next ones.

        Raises DataError where it ends before.
        """
        values = np.empty((count, self.width), self.dtype)
        if not self.member:  # some file systems share one position among all who opened a file
            file.seek(self.start + first * self.dtype.itemsize * self.width)
        view, done = values.reshape(-1).view(np.uint8).data, 0
        while done < len(view):
            piece = file.read(len(view) - done)
            if not piece:
                raise DataError(f"{self.uri}: ends within row {first + done // values.strides[0]}")
            view[done : done + len(piece)] = piece
            done += len(piece)
        return values


def blocks(files: list[FixedRows]) -> Iterator[tuple[int, list[Array]]]:
    """The first row, and the rows [n, width] of every file, block after block; all files have as many rows."""
    rows = files[0].rows if files else 0
    with ExitStack() as opened:
        handles = [part.open(opened) for part in files]
        for first in range(0, rows, BLOCK_ROWS):
            count = min(BLOCK_ROWS, rows - first)
            yield first, [part.read(handle, first, count) for part, handle in zip(files, handles, strict=True)]


def same_rows(files: list[FixedRows]) -> int:
    """The number of rows; raises DataError naming the first file with another number than the first."""
    for part in files:
        if part.rows != files[0].rows:
            raise DataError(f"{part.uri}: {part.rows} rows, but {files[0].uri} has {files[0].rows}")
    return files[0].rows if files else 0
