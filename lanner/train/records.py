"""Where a run's numbers go: `metrics.jsonl`, and TensorBoard where it is installed."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from lanner import storage
from lanner.train.run_directory import RunDirectory


class Records:
    """Records of a run, each ``{"step": …, "kind": "train"|"valid"|"tables", numbers}``.

    Without a directory they are dropped. `from_step` is where a resumed run goes on: later records of the
    interrupted one are taken back.
    """

    def __init__(self, run: RunDirectory | None, from_step: int = 0) -> None:
        self._lines: list[str] = []
        self._file = None if run is None else run.file("metrics.jsonl")
        self._written = 0
        self._board: Any = None
        if run is None:
            return
        if from_step and storage.exists(run.file("metrics.jsonl")):
            lines = storage.read_text(run.file("metrics.jsonl")).splitlines()
            self._lines = [line for line in lines if _step(line) <= from_step]
        if storage.is_local(run.path):
            with suppress(ImportError):
                from torch.utils.tensorboard import SummaryWriter

                purge = from_step or None
                self._board = SummaryWriter(run.file("tensorboard"), purge_step=purge)
        self.flush()

    def add(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """Keep `values` of `step`; `flush` writes them."""
        if self._file is None:
            return
        self._lines.append(json.dumps({"step": step, "kind": kind, **values}))
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    def flush(self) -> None:
        """Bring the file up to date: appended locally, written anew where files cannot be appended to."""
        if self._file is None or self._written == len(self._lines):
            return
        if self._written and storage.is_local(self._file):
            with open(storage.local_path(self._file), "a", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in self._lines[self._written :])
        else:
            storage.write_text(self._file, "".join(line + "\n" for line in self._lines))
        self._written = len(self._lines)
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        self.flush()
        if self._board is not None:
            self._board.close()


def _step(line: str) -> int:
    """Step of a record; a line cut short by a crash counts as later than all."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError):
        return 1 << 62
