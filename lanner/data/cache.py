"""Local copies of files that cannot be memory-mapped where they are."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from lanner import storage
from lanner.errors import DataError

BLOCK = 1 << 22


def folder() -> Path:
    """Where copies are kept: `LANNER_CACHE`, else `~/.cache/lanner`. It may be emptied at any time nothing reads it."""
    given = os.environ.get("LANNER_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "lanner"


def download(uri: str, checksum: str) -> str:
    """Path of a local copy of `uri`, made if there is none; its bytes have the BLAKE2b-128 `checksum`.

    Raises DataError naming the file when the bytes that arrive have another one.
    """
    target = folder() / f"{checksum}{Path(uri).suffix}"
    if target.exists():
        return str(target)
    digest = hashlib.blake2b(digest_size=16)
    with storage.open_file(uri) as source, storage.publish(target) as copy:
        while block := source.read(BLOCK):
            digest.update(block)
            copy.write(block)
        if digest.hexdigest() != checksum:
            raise DataError(f"{uri}: checksum {digest.hexdigest()}, the manifest says {checksum}")
    return str(target)
