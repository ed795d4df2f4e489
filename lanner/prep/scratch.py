"""The scratch folder of a run: staged files that a later run to the same place takes over."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lanner import storage

NAME = ".prep"


@contextmanager
def scratch_folder(out: str, given: str | None = None) -> Iterator[Path]:
    """The folder, locked against other runs; left in place when the block raises, removed when it ends well.

    Raises ConfigError when another run is writing to the same place.
    """
    folder = scratch_path(out, given).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with storage.locked(folder / "lock", out):
        yield folder
        shutil.rmtree(folder, ignore_errors=True)


def scratch_path(out: str, given: str | None = None) -> Path:
    """Where the folder lies: in the local output directory, else below `given` or the cache folder."""
    if given is None and storage.is_local(out):
        return storage.local_path(out) / NAME
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lanner"
    own = hashlib.blake2b(out.encode(), digest_size=8).hexdigest()
    return (Path(given) if given else cache) / f"prep-{own}"


def forget_others(folder: Path, keys: list[str]) -> None:
    """Remove staged files that this run does not use (their input was replaced or is read otherwise)."""
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name not in keys:
            shutil.rmtree(entry, ignore_errors=True)
