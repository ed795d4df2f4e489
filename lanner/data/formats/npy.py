"""NumPy's `.npy` files and the members of `.npz` archives, read in place and written without knowing their length."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from lanner import storage
from lanner.data.formats.base import Array
from lanner.data.formats.fixed import FixedRows
from lanner.errors import DataError

_LOCAL_HEADER = 30  # bytes of a zip member's own header, before its name and extra field


class _Tells(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...

    def tell(self) -> int: ...


def npy_rows(uri: str) -> FixedRows:
    """The rows of a `.npy` file; raises DataError where it is none, or of another size than it says."""
    if not storage.exists(uri):
        raise DataError(f"{uri}: no such file")
    with storage.open_file(uri) as file:
        rows = _rows(uri, file)
    expected = rows.start + rows.rows * rows.width * rows.dtype.itemsize
    if (size := storage.size(uri)) != expected:
        raise DataError(f"{uri}: {size} bytes, its header says {expected}")
    return rows


def npz_rows(uri: str) -> dict[str, FixedRows]:
    """The rows of every member of a `.npz` archive by name without `.npy`; nothing is unpacked.

    Raises DataError where it is no archive, or a member no array or of another size than it says.
    """
    found = {}
    try:
        with storage.open_file(uri) as file, zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                with archive.open(info) as member:
                    rows = _rows(f"{uri}: member {info.filename}", member)
                size = rows.start + rows.rows * rows.width * rows.dtype.itemsize
                if info.file_size != size:
                    raise DataError(f"{uri}: member {info.filename} has {info.file_size} bytes, its header says {size}")
                start, member_name = rows.start, info.filename
                if info.compress_type == zipfile.ZIP_STORED:
                    start, member_name = start + _data_of(file, info), ""
                name = info.filename.removesuffix(".npy")
                found[name] = FixedRows(uri, rows.dtype, rows.width, rows.rows, start, member_name)
    except zipfile.BadZipFile as error:
        raise DataError(f"{uri}: no whole .npz archive: {error}") from error
    return found


def _data_of(file: IO[bytes], info: zipfile.ZipInfo) -> int:
    """Where the bytes of a stored member begin in the archive."""
    file.seek(info.header_offset + 26)
    lengths = np.frombuffer(file.read(4), "<u2")
    return info.header_offset + _LOCAL_HEADER + int(lengths.sum())


def _rows(name: str, file: _Tells) -> FixedRows:
    """Shape, type and start of the data of an array whose header stands at the front of `file`."""
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, kind = read(file)
    except (ValueError, EOFError) as error:
        raise DataError(f"{name}: no .npy array: {error}") from error
    if kind.hasobject or not 1 <= len(shape) <= 2 or (fortran and len(shape) == 2 and shape[1] > 1):
        order = " in column order" if fortran else ""
        raise DataError(f"{name}: an array {list(shape)} of {kind}{order}; expected rows of numbers")
    return FixedRows(name, kind, int(np.prod(shape[1:], dtype=np.int64)), int(shape[0]), file.tell())


class Spool:
    """Arrays that grow row by row, kept in local temporary files until their length is known."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._folder = tempfile.TemporaryDirectory(prefix="lanner-")
        self._files: dict[str, tuple[IO[bytes], np.dtype[Any], tuple[int, ...]]] = {}
        self._rows: dict[str, int] = {}

    def write(self, name: str, values: Array) -> None:
        """Append rows [n, ...] to the array `name`."""
        if name not in self._files:
            path = Path(self._folder.name) / name
            file = self._open.enter_context(path.open("wb+"))
            self._files[name], self._rows[name] = (file, values.dtype, values.shape[1:]), 0
        self._files[name][0].write(np.ascontiguousarray(values).data)
        self._rows[name] += len(values)

    def copy_to(self, name: str, out: IO[bytes]) -> None:
        """Write the array `name` as a `.npy` file."""
        file, kind, shape = self._files[name]
        described = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False}
        np.lib.format.write_array_header_1_0(out, {**described, "shape": (self._rows[name], *shape)})
        file.seek(0)
        shutil.copyfileobj(file, out, 1 << 20)

    def save_npy(self, name: str, uri: str) -> None:
        """Publish one array."""
        with storage.publish(uri) as out:
            self.copy_to(name, out)

    def save_npz(self, members: Mapping[str, str], uri: str) -> None:
        """Publish an archive without compression; `members` gives the array of each member."""
        with storage.publish(uri) as out, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
            for member, name in members.items():
                with archive.open(zipfile.ZipInfo(f"{member}.npy"), "w", force_zip64=True) as file:
                    self.copy_to(name, file)

    def close(self) -> None:
        self._open.close()
        self._folder.cleanup()
