"""Local copies of files that cannot be memory-mapped where they are."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lanner import storage
from lanner.errors import DataError
from lanner.quantities import parse_amount

BLOCK = 1 << 22
LIMIT = "LANNER_CACHE_SIZE"
_used: set[Path] = set()
"""Copies that this process has asked for, which it may have mapped."""


def folder() -> Path:
    """Where copies are kept: `LANNER_CACHE`, else `~/.cache/lanner`. It may be emptied at any time nothing reads it."""
    given = os.environ.get("LANNER_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "lanner"


def download(uri: str, checksum: str) -> str:
    """Path of a local copy of `uri`, made if there is none; its bytes have the BLAKE2b-128 `checksum`.

    Processes that ask for the same file at once wait for one download. Raises DataError naming the file when the
    bytes that arrive have another checksum.
    """
    target = folder() / f"{checksum}{Path(uri).suffix}"
    with making(target) as missing:
        if missing:
            _copy(uri, target, checksum)
    return str(target)


def _copy(uri: str, target: Path, checksum: str) -> None:
    digest = hashlib.blake2b(digest_size=16)
    with storage.open_file(uri) as source, storage.publish(target) as copy:
        while block := source.read(BLOCK):
            digest.update(block)
            copy.write(block)
        if digest.hexdigest() != checksum:
            raise DataError(f"{uri}: checksum {digest.hexdigest()}, the manifest says {checksum}")


@contextmanager
def making(target: Path) -> Iterator[bool]:
    """Whether the copy `target` is to be made in the block, while other processes that want it wait.

    A copy that was made makes room for itself: see `trim`.
    """
    _used.add(target)
    if _touched(target):
        yield False
        return
    locks = target.parent / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    # Not removed, for another process may be about to wait for it; there are at most 256.
    with (locks / target.name[:2]).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = not _touched(target)
        yield missing
    if missing:
        trim()


def _touched(copy: Path) -> bool:
    """Whether `copy` exists; then it counts as used now."""
    try:
        os.utime(copy, ns=(time.time_ns(), copy.stat().st_mtime_ns))
    except FileNotFoundError:
        return False
    return True


def trim() -> None:
    """Remove the copies used longest ago until the folder holds at most `LANNER_CACHE_SIZE` (default: no limit).

    Those that this process uses stay. What another process has mapped keeps its bytes until that lets go of them.
    """
    given = os.environ.get(LIMIT)
    if not given:
        return
    most = parse_amount(given, LIMIT)
    copies = [(path, path.stat()) for path in folder().iterdir() if path.is_file() and not path.name.startswith(".")]
    held = sum(found.st_size for _, found in copies)
    for path, found in sorted(copies, key=lambda copy: copy[1].st_atime_ns):
        if held > most and path not in _used:
            path.unlink(missing_ok=True)
            held -= found.st_size
