"""`Backing`: how much memory tables may take, and which of them live on disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lanner.embedding.tables import TableConfig
from lanner.errors import ConfigError
from lanner.quantities import bytes_text, parse_amount

_STATE = 8  # bytes of optimizer state for each weight that a table is reckoned with, as with Adam
_KEPT_WHOLE = 0.5  # the share of `memory` that tables kept whole may take


@dataclass(frozen=True)
class Backing:
    """One memory budget for the static tables of a collection, those that do not fit it living on disk.

    Attributes:
        memory: bytes, or a text such as "8 GiB", for all static tables and their optimizer state in this process.
        directory: where the files with rows are made, on a fast disk; None is the system's temporary directory. They
            have no names and vanish with the process: to keep tables, dump them.
        ahead: how many batches training fetches rows ahead for.
        tables: names of the tables that live on disk. None chooses: where all tables fit `memory` there are none, else
            the smallest tables stay whole in memory as long as they take no more than half of it. Optimizer state is
            reckoned as Adam's here, 8 bytes a weight, so that the choice does not depend on the optimizer.
    """

    memory: int | str
    directory: str | os.PathLike[str] | None = None
    ahead: int = 2
    tables: Sequence[str] | None = None

    def __post_init__(self) -> None:
        parse_amount(self.memory, "Backing: memory")
        if not isinstance(self.ahead, int) or self.ahead < 0:
            raise ConfigError(f"Backing: ahead is {self.ahead!r}, expected a whole number of at least 0")
        if self.directory is not None and not Path(self.directory).is_dir():
            raise ConfigError(f"Backing: directory {os.fspath(self.directory)!r} is not there")

    @property
    def bytes(self) -> int:
        """The budget in bytes."""
        return int(parse_amount(self.memory, "Backing: memory"))

    def check(self, tables: Sequence[TableConfig]) -> None:
        """Raise ConfigError where `tables` has no static table of a name given."""
        known = [table.name for table in tables if table.rows != "dynamic"]
        for name in self.tables or ():
            if name not in known:
                raise ConfigError(f"Backing: there is no static table {name!r}; there are {', '.join(known) or 'none'}")

    def chosen(self, tables: Sequence[TableConfig]) -> list[str]:
        """The names of those static `tables`, all that this process holds, that live on disk."""
        if self.tables is not None:
            return [table.name for table in tables if table.name in self.tables]
        if sum(map(whole, tables)) <= self.bytes:
            return []
        taken, kept = 0, set()
        for table in sorted(tables, key=whole):
            taken += whole(table)
            if taken > self.bytes * _KEPT_WHOLE:
                break
            kept.add(table.name)
        return [table.name for table in tables if table.name not in kept]

    def shares(self, tables: Sequence[TableConfig], backed: Sequence[str]) -> dict[str, int]:
        """Bytes of memory for each of the tables called `backed`, by the sizes of the tables.

        Raises ConfigError where the tables that stay whole leave nothing.
        """
        kept = sum(whole(table) for table in tables if table.name not in backed)
        sizes = {table.name: whole(table) for table in tables if table.name in backed}
        left = self.bytes - kept
        if sizes and left <= 0:
            raise ConfigError(
                f"Backing: the tables kept whole may take {bytes_text(kept)} of a memory of {bytes_text(self.bytes)}, "
                f"which leaves none to {', '.join(sizes)}"
            )
        return {name: left * size // sum(sizes.values()) for name, size in sizes.items()}


def whole(table: TableConfig) -> int:
    """Bytes that a static table is reckoned to take in memory with its optimizer state."""
    weight = 4 if table.dtype == "fp32" else 2
    return table.static_rows * (table.dim * (weight + _STATE) + 8)
