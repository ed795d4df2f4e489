"""`RowFile`: the rows of a table on disk, each as a record of its weights and its optimizer state."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable

import numpy as np

from lanner.errors import ConfigError, LannerError
from lanner.kernels import records
from lanner.kernels.memory import zeros
from lanner.quantities import bytes_text

Fresh = Callable[[np.ndarray, np.ndarray], None]
"""Fills records [n], the second argument, with what rows int64 [n], the first, hold that were never written."""

Move = Callable[[int, np.ndarray, np.ndarray], None]
"""`read` or `write` of `lanner.kernels.records`."""


class RowFile:
    """Rows 0 .. `rows`-1. A row that was never written takes no disk, and reads as what `fresh` says.

    The file has no name: it vanishes when it is closed, or with the process.
    """

    def __init__(self, table: str, rows: int, record: np.dtype[np.void], directory: str, fresh: Fresh) -> None:
        """Raises ConfigError where the disk has no room for all rows, or there can be no such file."""
        self.record, self._fresh, self._rows = record, fresh, rows
        self.rows_read = self.rows_written = 0
        self._where = f"table {table!r}: its file of rows in {directory}"
        size = rows * record.itemsize
        try:
            free = shutil.disk_usage(directory).free
            if size > free:
                raise ConfigError(f"{self._where} may come to {bytes_text(size)}, there are {bytes_text(free)} free")
            self._file = tempfile.TemporaryFile(prefix="lanner-rows-", dir=directory, buffering=0)  # noqa: SIM115
            os.ftruncate(self._file.fileno(), size)
        except OSError as error:
            raise ConfigError(f"{self._where} cannot be made: {error}") from error
        self._written = zeros(-(-rows // 8), np.uint8)  # a bit for each row

    def written(self, rows: np.ndarray) -> np.ndarray:
        """Whether each of `rows` was ever written, bool [n]."""
        bits: np.ndarray = self._written[rows >> 3] >> (rows & 7).astype(np.uint8) & 1
        return bits.astype(bool)

    def read(self, rows: np.ndarray) -> np.ndarray:
        """The records [n] of distinct rising rows, int64 [n]. Raises LannerError where the disk fails."""
        found, old = np.empty(len(rows), self.record), self.written(rows)
        self.rows_read += int(np.count_nonzero(old))
        if old.all():
            self._transfer(records.read, rows, found)
            return found
        if old.any():
            stored = np.empty(np.count_nonzero(old), self.record)
            self._transfer(records.read, rows[old], stored)
            found[old] = stored
        made = np.empty(len(rows) - np.count_nonzero(old), self.record)
        self._fresh(rows[~old], made)
        found[~old] = made
        return found

    def write(self, rows: np.ndarray, content: np.ndarray) -> None:
        """Write the records of distinct rising rows. Raises LannerError where the disk fails; what was there may be
        lost then."""
        self._transfer(records.write, rows, content)
        self.rows_written += len(rows)
        np.bitwise_or.at(self._written, rows >> 3, np.left_shift(1, rows & 7).astype(np.uint8))

    def _transfer(self, move: Move, rows: np.ndarray, part: np.ndarray) -> None:
        try:
            move(self._file.fileno(), rows, part)
        except (OSError, EOFError) as error:
            doing = "written" if move is records.write else "read"
            raise LannerError(f"{self._where} cannot be {doing}: {error}") from error

    @property
    def empty(self) -> bool:
        """Whether no row was ever written."""
        return not self._written.any()

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return bookkeeping(self._rows)

    def disk_bytes(self) -> int:
        """Bytes of disk taken so far."""
        return os.fstat(self._file.fileno()).st_blocks * 512


def bookkeeping(rows: int) -> int:
    """Bytes of memory for a file of `rows` rows."""
    return -(-rows // 8)
