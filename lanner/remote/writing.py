"""Remote files that appear whole or not at all.

An object store shows an object once its upload is complete. HDFS shows a file from its first byte, so that it is
written under another name beside its place and renamed.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, cast

from lanner.errors import RemoteError
from lanner.remote.access import WAITS, attempt, file_system, protocol

UNPUBLISHED = ".part"
APPEND_BYTES = 32 << 20
"""Bytes of one append to a WebHDFS file."""

_RENAMING = ("hdfs", "arrow_hdfs", "webhdfs")


def renames(uri: str) -> bool:
    """Whether files on the file system of `uri` are written under another name and renamed."""
    return protocol(uri).lower() in _RENAMING


class _Writer(io.RawIOBase):
    """Hands what is written to `put`; errors name the URI."""

    def __init__(self, uri: str, put: Callable[[memoryview], Any]) -> None:
        super().__init__()
        self._uri, self._put, self._at = uri, put, 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if view.nbytes:
            attempt(self._uri, lambda: self._put(view), ())
        self._at += view.nbytes
        return view.nbytes


@contextmanager
def whole(uri: str) -> Iterator[IO[bytes]]:
    """Write a remote file that appears whole or not at all."""
    if renames(uri):
        with _renamed(uri) as file:
            yield file
        return
    # A transaction belongs to the file system object, which fsspec shares among all callers: take one of our own.
    # Making one costs more than writing a small file, so that those not at work are kept beside the shared one.
    shared, path = file_system(uri)
    idle = vars(shared).setdefault("_idle_for_lanner", [])
    try:
        fs = idle.pop()
    except IndexError:
        fs, _ = file_system(uri, skip_instance_cache=True)
    with fs.transaction as transaction:
        opened = attempt(uri, lambda: fs.open(path, "wb"), ())
        try:
            yield cast(IO[bytes], _Writer(uri, opened.write))
            attempt(uri, opened.close, ())
        except BaseException:
            with suppress(Exception):
                opened.close()
            raise
        # Within the transaction, so that what goes wrong is named; nothing is left for its end.
        attempt(uri, lambda: _commit(transaction), ())
    idle.append(fs)
    shared.invalidate_cache()


def _commit(transaction: Any) -> None:
    while transaction.files:
        transaction.files.popleft().commit()


@contextmanager
def _renamed(uri: str) -> Iterator[IO[bytes]]:
    fs, path = file_system(uri)
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{secrets.token_hex(4)}{UNPUBLISHED}"
    attempt(uri, lambda: fs.makedirs(folder or "/", exist_ok=True))
    try:
        if protocol(uri).lower() == "webhdfs":
            appended = _Appended(uri, fs, temporary)
            file = _Writer(uri, appended.write)
            yield cast(IO[bytes], file)
            appended.flush()
        else:
            stream = attempt(uri, lambda: fs.open(temporary, "wb"))
            try:
                file = _Writer(uri, stream.write)
                yield cast(IO[bytes], file)
            finally:
                attempt(uri, stream.close, ())
        size = file.tell()
        attempt(uri, lambda: _replace(fs, temporary, path, size), WAITS)
    except BaseException:
        with suppress(Exception):
            fs.rm(temporary)
        raise


class _Appended:
    """A WebHDFS file written by appends, each of which is repeated only when it was not carried out."""

    def __init__(self, uri: str, fs: Any, path: str) -> None:
        self._uri, self._fs, self._path = uri, fs, path
        self._buffer, self._at = bytearray(), 0
        attempt(uri, self._create, WAITS)

    def _create(self) -> None:
        self._send("CREATE", "PUT", b"", overwrite="true")

    def _send(self, operation: str, method: str, data: bytes, **options: str) -> None:
        """Ask the name node where to, and send `data` there. (fsspec's own file cannot append, nor send again.)"""
        asked = self._fs._call(operation, method, self._path, redirect=False, **options)
        place = self._fs._apply_proxy(asked.headers["Location"])
        kind = {"content-type": "application/octet-stream"}
        self._fs.session.request(method, place, data=data, headers=kind).raise_for_status()

    def write(self, data: memoryview) -> None:
        self._buffer += data
        if len(self._buffer) >= APPEND_BYTES:
            self.flush()

    def flush(self) -> None:
        """Append what has gathered."""
        data, tried = bytes(self._buffer), False

        def append() -> None:
            nonlocal tried
            if tried and self._carried_out(len(data)):
                return
            tried = True
            self._send("APPEND", "POST", data)

        if data:
            attempt(self._uri, append, WAITS)
        self._at += len(data)
        self._buffer.clear()

    def _carried_out(self, count: int) -> bool:
        """Whether an append whose answer was lost took place. Raises RemoteError when it did so in part."""
        size = self._fs.size(self._path)
        if size not in (self._at, self._at + count):
            raise RemoteError(f"{self._uri}: an append of {count} bytes at {self._at} left a file of {size}")
        return bool(size > self._at)


def _replace(fs: Any, source: str, target: str, size: int) -> None:
    """Rename over whatever `target` holds; may be repeated. `size` is the bytes that `target` then has."""
    with suppress(FileNotFoundError):  # gone: an earlier call did it, and its answer was lost
        if "webhdfs" in fs.protocol:
            # fsspec does not hand on this option, without which HDFS refuses, with status 200, to replace a file.
            fs._call("RENAME", "put", source, destination=target, renameoptions="OVERWRITE")
        if fs.info(source):  # HttpFS does not know the option, and libhdfs has none
            with suppress(FileNotFoundError):
                fs.rm(target)
            fs.mv(source, target)
    if (seen := fs.info(target)["size"]) != size:
        raise OSError(f"{seen} bytes after the rename, {size} were written")
