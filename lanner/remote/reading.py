"""Reading a remote file through failures of the network and of the server."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any

from lanner.remote.access import WAITS, attempt, file_system


class Reader(io.RawIOBase):
    """A remote file that is opened again at the same place when reading fails."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self._uri, self._at, self._place = uri, 0, 0
        self._file: Any = attempt(uri, self._opened)
        self._size: int | None = getattr(self._file, "size", None)

    def _opened(self) -> Any:
        fs, path = file_system(self._uri)
        return fs.open(path, "rb")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END and self._size is None:
            raise io.UnsupportedOperation(f"{self._uri}: the server does not tell the size of the file")
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = (base or 0) + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = attempt(self._uri, lambda: self._read(view.nbytes), WAITS)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _read(self, count: int) -> bytes:
        if self._size is not None:
            count = min(count, self._size - self._at)
        if count <= 0:
            return b""
        try:
            self._go()
            data: bytes = self._file.read(count)
            if not data and self._size is not None:
                raise OSError(f"nothing came at byte {self._at} of {self._size}")
        except Exception:
            self._drop()
            raise
        self._place = self._at + len(data)
        return data

    def _go(self) -> None:
        """Open the file if it is not, and bring it to the place to read from."""
        if self._file is not None and self._place == self._at:
            return
        if self._file is not None and self._size is None and self._place > self._at:
            self._drop()  # a stream
        if self._file is None:
            self._file, self._place = self._opened(), 0
        if self._size is not None:
            self._file.seek(self._at)
        while self._size is None and self._place < self._at:
            skipped = self._file.read(min(self._at - self._place, 1 << 20))
            if not skipped:
                raise OSError(f"the file ended at byte {self._place}, before byte {self._at}")
            self._place += len(skipped)

    def _drop(self) -> None:
        if self._file is not None:
            with suppress(Exception):
                self._file.close()
            self._file = None

    def close(self) -> None:
        self._drop()
        super().close()
