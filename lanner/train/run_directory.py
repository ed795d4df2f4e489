"""A run directory: recipe, checkpoints, metrics and result of one training run.

recipe.yaml, status.json, result.json, metrics.jsonl, tensorboard/
checkpoints/<step>/     the newest few, and the best one
best, last              text files holding the step of a checkpoint
"""

from __future__ import annotations

import json
import os
from typing import Any

from lanner import manifest as manifests
from lanner import storage

LOCK = ".lock"
"""File of a local run directory that is locked while a run writes there."""

_FILES = ("checkpoints", "best", "last", "metrics.jsonl", "result.json", "status.json", "tensorboard", "recipe.yaml")


class RunDirectory:
    """Names and bookkeeping of the directory `path`; nothing is created until something is written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def file(self, name: str) -> str:
        return storage.join(self.path, name)

    def checkpoint(self, step: int) -> str:
        """Path of the checkpoint of a step."""
        return storage.join(self.path, "checkpoints", str(step))

    def steps(self) -> list[int]:
        """Steps of the finished checkpoints, rising."""
        if not storage.is_directory(self.file("checkpoints")):
            return []
        names = [name.split("/") for name in storage.list_files(self.file("checkpoints"))]
        return sorted(int(n[0]) for n in names if len(n) == 2 and n[1] == manifests.NAME and n[0].isdigit())

    def last(self) -> str | None:
        """The newest finished checkpoint; None when there is none."""
        steps = self.steps()
        return self.checkpoint(steps[-1]) if steps else None

    def best(self) -> str | None:
        """The checkpoint with the best validation metric; None when none was chosen."""
        step = self._named("best")
        return None if step is None or step not in self.steps() else self.checkpoint(step)

    def keep(self, step: int, best: bool, keep: int) -> None:
        """Name a finished checkpoint last (and best), and remove those no longer needed: all but the newest `keep`."""
        storage.write_text(self.file("last"), f"{step}\n")
        if best:
            storage.write_text(self.file("best"), f"{step}\n")
        kept = {*self.steps()[-keep:], self._named("best")}
        for old in self.steps():
            if old not in kept:
                storage.remove(self.checkpoint(old))

    def clear(self) -> None:
        """Remove what an earlier run left here."""
        for name in _FILES:
            storage.remove(self.file(name))

    def write_result(self, result: dict[str, Any]) -> None:
        storage.write_text(self.file("result.json"), json.dumps(result, indent=2, allow_nan=False) + "\n")

    def read_result(self) -> dict[str, Any] | None:
        """What `write_result` wrote; None when the run has no result yet."""
        if not storage.exists(self.file("result.json")):
            return None
        result: dict[str, Any] = json.loads(storage.read_text(self.file("result.json")))
        return result

    def write_status(self, status: dict[str, Any]) -> None:
        """See `lanner.train.status`."""
        storage.write_text(self.file("status.json"), json.dumps(status) + "\n")

    def read_status(self) -> dict[str, Any] | None:
        """What `write_status` wrote last, None when it never did; "killed" for "running" where nobody runs any more.

        That can be told of a local directory alone, on the machine where the first process ran.
        """
        if not storage.exists(self.file("status.json")):
            return None
        status: dict[str, Any] = json.loads(storage.read_text(self.file("status.json")))
        local = storage.is_local(self.path)
        if status["status"] == "running" and local and not storage.is_locked(storage.local_path(self.file(LOCK))):
            return {**status, "status": "killed"}
        return status

    def _named(self, name: str) -> int | None:
        if not storage.exists(self.file(name)):
            return None
        text = storage.read_text(self.file(name)).strip()
        return int(text) if text.isdigit() else None
