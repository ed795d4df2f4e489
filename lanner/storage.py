"""Files on any URI (local, s3, gs, hdfs, memory, ...) through fsspec, written whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from fsspec import AbstractFileSystem

from lanner import remote
from lanner.errors import ConfigError, DataError, RemoteError

_READ_BUFFER = 1 << 20
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def is_local(uri: str | os.PathLike[str]) -> bool:
    """True when `uri` names a path on this machine (no scheme, or ``file://``)."""
    text = os.fspath(uri)
    return "://" not in text or text.startswith("file://")


def local_path(uri: str | os.PathLike[str]) -> Path:
    """The local path of a URI for which `is_local` holds."""
    return Path(os.fspath(uri).removeprefix("file://")).expanduser()


def join(base: str | os.PathLike[str], *parts: str) -> str:
    """`base` and `parts` joined by single slashes; works for URIs and local paths."""
    text = os.fspath(base)
    head = text if text.endswith("://") else text.rstrip("/") + "/"
    return head + "/".join(part.strip("/") for part in parts) if parts else text


def safe_name(name: str) -> str:
    """`name` as that of a file or directory of any system: all but letters, digits, spaces and "_.-~" in percent codes.

    So are the points of "." and "..".
    """
    return quote(name, safe=" ") if name.strip(".") else name.replace(".", "%2E")


def open_file(uri: str | os.PathLike[str]) -> IO[bytes]:
    """Open the file `uri` to read bytes.

    A remote file is opened again at the same place when reading fails for a reason that may pass. Raises
    FileNotFoundError, PermissionError, RemoteError, or ConfigError for an unknown protocol, naming the URI.
    """
    if is_local(uri):
        return local_path(uri).open("rb")
    return io.BufferedReader(remote.Reader(os.fspath(uri)), _READ_BUFFER)


def status(uri: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What the file system says of a file or directory (`type`, `size`, times, tags); None when there is none."""
    text = os.fspath(uri)
    fs, path = _file_system(text)
    if is_local(text) and not fs.exists(path):
        return None
    try:
        found: dict[str, Any] = remote.attempt(text, lambda: fs.info(path))
    except FileNotFoundError:
        return None
    return found


def _file_system(uri: str | os.PathLike[str]) -> tuple[Any, str]:
    """The file system and the path on it; what other processes wrote there since is seen."""
    fs, path = remote.file_system(os.fspath(uri))
    fs.invalidate_cache()
    return fs, path


def exists(uri: str | os.PathLike[str]) -> bool:
    return status(uri) is not None


def is_directory(uri: str | os.PathLike[str]) -> bool:
    found = status(uri)
    return found is not None and found["type"] == "directory"


def size(uri: str | os.PathLike[str]) -> int:
    """Size of a file in bytes. Raises FileNotFoundError, or RemoteError where a server does not tell it."""
    text = os.fspath(uri)
    fs, path = _file_system(text)
    found = remote.attempt(text, lambda: fs.size(path))
    if found is None:
        raise RemoteError(f"{text}: the server does not tell the size of the file")
    return int(found)


def list_files(uri: str | os.PathLike[str]) -> list[str]:
    """Paths of all files below the directory `uri`, relative to it and sorted."""
    text = os.fspath(uri)
    fs, path = _file_system(text)
    root = path.rstrip("/") + "/"
    found = remote.attempt(text, lambda: fs.find(path, **_strict(fs)))
    return sorted(str(name).removeprefix(root) for name in found)


def _strict(fs: Any) -> dict[str, Any]:
    """Have fsspec's own walk through directories raise what goes wrong, which it otherwise takes for emptiness."""
    return {"on_error": "raise"} if type(fs).find is AbstractFileSystem.find else {}


def expand(patterns: list[str]) -> list[str]:
    """Files named by `patterns`: plain URIs and globs, each pattern's matches sorted.

    Raises FileNotFoundError naming the first pattern that matches nothing.
    """
    found: list[str] = []
    for pattern in patterns:
        matches = _matches(pattern)
        if not matches:
            raise FileNotFoundError(f"no file matches {pattern!r}")
        found += matches
    return found


def _matches(pattern: str) -> list[str]:
    fs, path = _file_system(pattern)
    wild = "*[" if pattern.startswith("http") else "*?["  # a question mark begins the query of an address
    if not any(c in path for c in wild):
        return [path if is_local(pattern) else pattern] if exists(pattern) else []
    try:
        matches = sorted(remote.attempt(pattern, lambda: fs.glob(path, **_strict(fs))))
    except FileNotFoundError:
        return []
    # What fsspec takes off a URI to make a path differs: here, where a host may be part of it, as it was given.
    prefix = "" if is_local(pattern) else pattern.removesuffix(path)
    return [prefix + str(match) for match in matches]


def make_directory(uri: str | os.PathLike[str]) -> None:
    text = os.fspath(uri)
    fs, path = _file_system(text)
    remote.attempt(text, lambda: fs.makedirs(path, exist_ok=True))


def remove(uri: str | os.PathLike[str]) -> None:
    """Remove a file or a whole directory; nothing happens when it does not exist."""
    text = os.fspath(uri)
    if exists(text):
        fs, path = _file_system(text)
        with suppress(FileNotFoundError):
            remote.attempt(text, lambda: fs.rm(path, recursive=True))


@contextmanager
def publish(uri: str | os.PathLike[str]) -> Iterator[IO[Any]]:
    """Write a file that appears whole or not at all.

    Locally and on HDFS the bytes go to a temporary name in the same directory and are renamed into place; object
    stores show an object only once its upload is complete, and an upload cut short by an error is given up. A full
    disk or one that fails raises OSError naming the file, a server that does RemoteError.
    """
    if is_local(uri):
        target = local_path(uri)
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=remote.UNPUBLISHED, dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, target)
        except BaseException as error:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            if isinstance(error, OSError) and error.filename is None and error.errno in _DISK_ERRORS:
                raise OSError(error.errno, os.strerror(error.errno), str(target)) from error
            raise
        return
    with remote.whole(os.fspath(uri)) as sink:
        yield sink


def remove_unpublished(directory: str | os.PathLike[str], name: str = "*") -> None:
    """Remove what killed writers of the file `name` left in `directory`; none may be at work there."""
    pattern = f".{name}.????????{remote.UNPUBLISHED}"
    if is_local(directory):
        for path in local_path(directory).glob(pattern):
            path.unlink(missing_ok=True)
    elif remote.renames(os.fspath(directory)):
        for found in _matches(join(directory, f".*{remote.UNPUBLISHED}")):
            if fnmatch(found.rpartition("/")[2], pattern):
                remove(found)


@contextmanager
def locked(file: Path, what: str) -> Iterator[None]:
    """Hold the local lock `file` against other processes while the block runs; it is removed at the end.

    The system lets go of it when the process dies, however that comes. Raises ConfigError saying that another run is
    writing to `what` where the lock is held.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = os.path.samestat(os.fstat(lock.fileno()), file.stat())
        except (BlockingIOError, FileNotFoundError):
            taken = False  # held, or removed by its last holder just now
        if not taken:
            raise ConfigError(f"{what}: another run is writing there")
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def is_locked(file: Path) -> bool:
    """Whether a process holds the local lock `file` (see `locked`)."""
    try:
        with file.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def write_text(uri: str | os.PathLike[str], text: str) -> None:
    """Publish `text` as UTF-8."""
    with publish(uri) as file:
        file.write(text.encode())


def read_text(uri: str | os.PathLike[str]) -> str:
    """The content of a UTF-8 file. Raises DataError naming the file when it is none."""
    with open_file(uri) as file:
        try:
            return str(file.read().decode())
        except UnicodeDecodeError as error:
            raise DataError(f"{os.fspath(uri)}: not UTF-8 text (byte {error.start})") from error


def checksum(uri: str | os.PathLike[str]) -> str:
    """Hex BLAKE2b-128 of a file's bytes."""
    digest = hashlib.blake2b(digest_size=16)
    with open_file(uri) as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()
