"""Which rank holds what: `Placement` of one table, `Plan` of all of them, and its YAML form.

Every placement but "data" has one shape: the columns of the table are cut into equal blocks, one for each *group* of
ranks, and the rows of a block are shared out among the ranks of its group.

    kind        ranks            groups                    a rank holds
    data                                                   the whole table, as every rank does
    table       [2]              ((2,),)                   the whole table
    row         [0, 1, 2, 3]     ((0, 1, 2, 3),)           every fourth row
    column      [0, 1, 2, 3]     ((0,), (1,), (2,), (3,))  a quarter of the columns of all rows
    two-level   [[0, 1], [2, 3]] ((0, 1), (2, 3))          half the columns (its node's) of every second row
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import yaml

from lanner import storage
from lanner.embedding.tables import TableConfig
from lanner.errors import ConfigError

Kind = Literal["data", "table", "row", "column", "two-level"]
KINDS: tuple[str, ...] = get_args(Kind)

SMALL = 1 << 18
"""Bytes of weights up to which `Plan.default` copies a static table to every rank."""

_VERSION = 1


@dataclass(frozen=True)
class Placement:
    """Where one table lies (see the module). `ranks` are numbers, for two-level tuples of numbers, for data none."""

    kind: Kind
    ranks: tuple[int, ...] | tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        """Raise ConfigError where the kind is unknown or the ranks do not suit it."""
        if self.kind not in KINDS:
            raise ConfigError(f"placement: kind is {self.kind!r}, expected one of {', '.join(KINDS)}")
        object.__setattr__(self, "ranks", _tuples(self.ranks))
        if self.kind == "two-level":
            _check_nodes(self.ranks)
        elif not all(_is_rank(rank) for rank in self.ranks):
            raise ConfigError(f"placement {self.kind!r}: ranks are {self.ranks!r}, expected whole numbers from 0")
        if self.kind == "table" and len(self.ranks) != 1:
            raise ConfigError(f"placement 'table': ranks are {self.ranks!r}, expected exactly one")
        if self.kind != "data" and not self.ranks:
            raise ConfigError(f"placement {self.kind!r}: no ranks given")
        for rank, times in Counter(self.used).items():
            if times > 1:
                raise ConfigError(f"placement {self.kind!r}: rank {rank} is given {times} times in {self.ranks!r}")

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The ranks that share the rows of each block of columns; none for data."""
        if self.kind == "data":
            return ()
        if self.kind == "row":
            return (self.used,)
        return tuple(rank if isinstance(rank, tuple) else (rank,) for rank in self.ranks)

    @property
    def used(self) -> tuple[int, ...]:
        """All ranks named, in order."""
        return tuple(each for rank in self.ranks for each in (rank if isinstance(rank, tuple) else (rank,)))


@dataclass(frozen=True)
class Plan:
    """The placement of every table among `world_size` processes.

    `notes` and `table_notes` hold what else the YAML form says, of the whole and by table (a planner's predictions);
    nothing here reads them. Raises ConfigError naming table and value for a rank that does not exist.
    """

    world_size: int
    tables: Mapping[str, Placement]
    notes: Mapping[str, Any] = field(default_factory=dict)
    table_notes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _is_rank(self.world_size) or self.world_size < 1:
            raise ConfigError(f"plan: world_size is {self.world_size!r}, expected a whole number of at least 1")
        for name, placement in self.tables.items():
            for rank in placement.used:
                if rank >= self.world_size:
                    raise ConfigError(f"plan: table {name!r}: rank {rank} is not in 0..{self.world_size - 1}")
            if placement.kind == "data" and len(placement.used) not in (0, self.world_size):
                raise ConfigError(
                    f"plan: table {name!r}: kind 'data' copies it to all {self.world_size} ranks, but ranks are "
                    f"{list(placement.used)}; leave them out"
                )

    @classmethod
    def default(cls, tables: Iterable[TableConfig], world_size: int) -> Plan:
        """Static tables of up to `SMALL` bytes of weights on every rank, all others row-wise over all ranks."""
        rows = Placement("row", tuple(range(world_size)))
        return cls(world_size, {table.name: Placement("data") if _is_small(table) else rows for table in tables})

    def check(self, tables: Iterable[TableConfig]) -> None:
        """Raise ConfigError where `tables` and the plan's do not match, or a table cannot be cut as planned."""
        given = {table.name: table for table in tables}
        for name in self.tables.keys() - given.keys():
            raise ConfigError(f"plan: there is no table {name!r}; there are {', '.join(given)}")
        for name, table in given.items():
            if name not in self.tables:
                raise ConfigError(f"plan: table {name!r} has no placement")
            self._check_table(table, self.tables[name])

    @staticmethod
    def _check_table(table: TableConfig, placement: Placement) -> None:
        blocks = len(placement.groups)
        if blocks and table.dim % blocks:
            raise ConfigError(f"plan: table {table.name!r}: dim {table.dim} does not divide into {blocks} equal blocks")
        if placement.kind == "data" and table.rows == "dynamic":
            raise ConfigError(f"plan: table {table.name!r} is dynamic, which kind 'data' does not allow; use 'row'")

    def to_yaml(self) -> str:
        """The plan as YAML, to be read and edited by hand."""
        tables = {}
        for name, placement in self.tables.items():
            ranks = {} if placement.kind == "data" else {"ranks": _lists(placement.ranks)}
            tables[name] = {"kind": placement.kind, **ranks, **self.table_notes.get(name, {})}
        values = {"version": _VERSION, "world_size": self.world_size, **self.notes, "tables": tables}
        return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None)

    @classmethod
    def from_yaml(cls, text: str, source: str = "plan") -> Plan:
        """Inverse of `to_yaml`. Raises ConfigError naming `source`, table and value for what cannot be used."""
        try:
            values = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"{source}: not valid YAML: {error}") from error
        values = _mapping(values, source)
        if (version := values.pop("version", None)) != _VERSION:
            raise ConfigError(f"{source}: version is {version!r}, expected {_VERSION}")
        world_size, tables = values.pop("world_size", None), _mapping(values.pop("tables", None), f"{source}: tables")
        placements: dict[str, Placement] = {}
        table_notes: dict[str, dict[str, Any]] = {}
        for name, entry in tables.items():
            where = f"{source}: table {name!r}"
            notes = _mapping(entry, where)
            placements[name] = _placement(notes.pop("kind", None), notes.pop("ranks", ()), where)
            if notes:
                table_notes[name] = notes
        try:
            return cls(world_size, placements, values, table_notes)
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from error

    def save(self, uri: str | os.PathLike[str]) -> None:
        """Write the YAML form to any URI."""
        storage.write_text(uri, self.to_yaml())

    @classmethod
    def load(cls, uri: str | os.PathLike[str]) -> Plan:
        """Read what `save` wrote. Raises ConfigError naming the file."""
        return cls.from_yaml(storage.read_text(uri), os.fspath(uri))


def _is_rank(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_small(table: TableConfig) -> bool:
    return isinstance(table.rows, int) and table.rows * table.dim * 4 <= SMALL


def _check_nodes(nodes: tuple[Any, ...]) -> None:
    for node in nodes:
        if not isinstance(node, tuple) or not node or not all(_is_rank(rank) for rank in node):
            raise ConfigError(f"placement 'two-level': ranks are {nodes!r}, expected a list of ranks for each node")
        if len(node) != len(nodes[0]):
            raise ConfigError(f"placement 'two-level': nodes {nodes[0]!r} and {node!r} have unequal numbers of ranks")


def _placement(kind: Any, ranks: Any, where: str) -> Placement:
    if not isinstance(ranks, (list, tuple)):
        raise ConfigError(f"{where}: ranks are {ranks!r}, expected a list")
    try:
        return Placement(kind, tuple(ranks))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ConfigError(f"{where}: found {value!r}, expected a mapping of names")
    return dict(value)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(each) for each in value) if isinstance(value, (list, tuple)) else value


def _lists(value: Any) -> Any:
    return [_lists(each) for each in value] if isinstance(value, tuple) else value
