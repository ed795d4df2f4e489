"""Files on any URI (local, s3, gs, hdfs, memory, ...) through fsspec, written whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import fsspec
from fsspec.core import url_to_fs

from lanner.errors import ConfigError, DataError

_UNPUBLISHED = ".part"
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def is_local(uri: str | os.PathLike[str]) -> bool:
    """True when `uri` names a path on this machine (no scheme, or ``file://``)."""
    text = os.fspath(uri)
    return "://" not in text or text.startswith("file://")


def local_path(uri: str | os.PathLike[str]) -> Path:
    """The local path of a URI for which `is_local` holds."""
    return Path(os.fspath(uri).removeprefix("file://"))


def join(base: str | os.PathLike[str], *parts: str) -> str:
    """`base` and `parts` joined by single slashes; works for URIs and local paths."""
    text = os.fspath(base)
    head = text if text.endswith("://") else text.rstrip("/") + "/"
    return head + "/".join(part.strip("/") for part in parts) if parts else text


def open_file(uri: str | os.PathLike[str], mode: str = "rb", **options: Any) -> IO[Any]:
    """Open `uri` with fsspec. Raises FileNotFoundError, or ConfigError for an unknown protocol, naming the URI."""
    with _known(uri):
        opened = fsspec.open(os.fspath(uri), mode, **options)
    file: IO[Any] = opened.open()
    return file


@contextmanager
def _known(uri: str | os.PathLike[str]) -> Iterator[None]:
    """Turn fsspec's word on a protocol that it does not know, or lacks the package for, into ours."""
    try:
        yield
    except (ValueError, ImportError) as error:
        raise ConfigError(f"{os.fspath(uri)}: {error}") from error


def _file_system(uri: str | os.PathLike[str], **options: Any) -> tuple[Any, str]:
    with _known(uri):
        fs, path = url_to_fs(os.fspath(uri), **options)
    return fs, path


def exists(uri: str | os.PathLike[str]) -> bool:
    fs, path = _file_system(uri)
    return bool(fs.exists(path))


def is_directory(uri: str | os.PathLike[str]) -> bool:
    fs, path = _file_system(uri)
    return bool(fs.isdir(path))


def size(uri: str | os.PathLike[str]) -> int:
    """Size of a file in bytes."""
    fs, path = _file_system(uri)
    return int(fs.size(path))


def list_files(uri: str | os.PathLike[str]) -> list[str]:
    """Paths of all files below the directory `uri`, relative to it and sorted."""
    fs, path = _file_system(uri)
    root = path.rstrip("/") + "/"
    return sorted(str(found).removeprefix(root) for found in fs.find(path))


def expand(patterns: list[str]) -> list[str]:
    """Files named by `patterns`: plain URIs and globs, each pattern's matches sorted.

    Raises FileNotFoundError naming the first pattern that matches nothing.
    """
    found: list[str] = []
    for pattern in patterns:
        fs, path = _file_system(pattern)
        matches = sorted(fs.glob(path)) if any(c in path for c in "*?[") else [path] if fs.exists(path) else []
        if not matches:
            raise FileNotFoundError(f"no file matches {pattern!r}")
        found += [str(match) if is_local(pattern) else str(fs.unstrip_protocol(match)) for match in matches]
    return found


def make_directory(uri: str | os.PathLike[str]) -> None:
    fs, path = _file_system(uri)
    fs.makedirs(path, exist_ok=True)


def remove(uri: str | os.PathLike[str]) -> None:
    """Remove a file or a whole directory; nothing happens when it does not exist."""
    fs, path = _file_system(uri)
    if fs.exists(path):
        fs.rm(path, recursive=True)


@contextmanager
def publish(uri: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Write a file that appears whole or not at all.

    Locally the bytes go to a temporary name in the same directory and are renamed into place; object stores
    show an object only once its upload is complete, and an upload cut short by an error is given up. A full disk or
    one that fails raises OSError naming the file.
    """
    if is_local(uri):
        target = local_path(uri)
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=_UNPUBLISHED, dir=target.parent)
        try:
            with os.fdopen(handle, mode) as file:
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
    # A transaction belongs to the file system object, which fsspec shares among all callers: take one of our own.
    fs, path = _file_system(uri, skip_instance_cache=True)
    with fs.transaction, fs.open(path, mode) as file:
        yield file
    _file_system(uri)[0].invalidate_cache()


def remove_unpublished(directory: str | os.PathLike[str], name: str = "*") -> None:
    """Remove what killed writers of the file `name` left in the local `directory`; none may be at work there."""
    if is_local(directory):
        for path in local_path(directory).glob(f".{name}.????????{_UNPUBLISHED}"):
            path.unlink(missing_ok=True)


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
