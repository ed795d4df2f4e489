"""Progress of long work: a bar on a terminal (stderr), silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Bar(Protocol):
    """A running bar; `note` is short text shown beside it (samples/s, loss)."""

    def advance(self, amount: int = 1, note: str = "") -> None: ...


class _Silent:
    def advance(self, amount: int = 1, note: str = "") -> None:
        pass


@contextmanager
def progress(title: str, total: int | None = None, quiet: bool = False) -> Iterator[Bar]:
    """Show a bar titled `title` over `total` units while the block runs; `total` None pulses."""
    if quiet or not sys.stderr.isatty():
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as shown:
        task = shown.add_task(title, total=total, note="")

        class _Shown:
            note = ""

            def advance(self, amount: int = 1, note: str = "") -> None:
                self.note = note or self.note
                shown.update(task, advance=amount, note=self.note)

        yield _Shown()
