"""What a source of raw rows is: a module-like object that reads one file into `RawChunk`s.

The engine knows sources only by this protocol. Adding one is a file here plus a line in `open_source`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from lanner.errors import ConfigError
from lanner.schema import Schema

if TYPE_CHECKING:
    from lanner.prep.chunk import RawChunk

SourceName = Literal["criteo", "csv", "parquet", "json"]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that breaks the format: its 1-based line (for Parquet: row) number, why, and its text.

    `reason` is one of few short words (`fields`, `label`, `integer`, `hex`, `range`, ...) and is what the counters
    are kept by; `message` is the full sentence for people: column, value seen, what was expected.
    """

    line: int
    reason: str
    message: str
    text: str


OnBadRow = Callable[[BadRow], None]
"""Called for each bad row, in line order. It may raise (strict mode); when it returns, the row is dropped."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read a file; each source takes the fields that concern it and ignores the others.

    `block_bytes` is about how many bytes of the (uncompressed) file go into one chunk: the engine sets it from its
    memory budget. `time` names the raw column to return as `RawChunk.time`: numbers as they are, dates and
    timestamps as int64 microseconds since 1970 UTC; a missing time makes a bad row. `labelled` is false when the
    file has no label columns (then `schema.labels` is empty as well).
    """

    block_bytes: int = 8 << 20
    labelled: bool = True
    time: str | None = None
    delimiter: str | None = None  # None: the source's own (tab for criteo, comma for csv)
    numeric: int = 13  # criteo: number of integer columns I1..
    categorical: int = 26  # criteo: number of hexadecimal columns C1..
    header: bool = True  # csv: the first line names the columns
    names: tuple[str, ...] = ()  # csv without a header: the column names; one for several fields makes a list
    null: tuple[str, ...] = ("",)  # csv: texts that mean a missing cell
    strip: bool = False  # csv: drop blanks around values
    join: tuple[str, ...] = ()  # csv, parquet, json: `key=file`, more columns of the rows by a key column


class Source(Protocol):
    """Reads one kind of file."""

    def schema(self, options: ReadOptions) -> Schema | None:
        """The schema used when the user gives none; None where there is no natural one."""
        ...

    def check(self, schema: Schema, options: ReadOptions) -> None:
        """Raise ConfigError or SchemaError where schema and options do not fit this source, before any file is read."""
        ...

    def read(self, file: str, schema: Schema, options: ReadOptions, on_bad_row: OnBadRow) -> Iterator[RawChunk]:
        """Yield the rows of `file` (any fsspec URI) in order, in memory bounded by `options.block_bytes`.

        Sparse features come in schema order, dense values untransformed (NaN = missing), labels already as
        numbers. The chunks may be of any size, empty ones included. Raises DataError naming the file where it is
        damaged as a whole (a cut archive, a missing column): with the number of rows read before the break.
        """
        ...


def open_source(name: str) -> Source:
    """The source called `name`; ConfigError when there is none."""
    if name == "criteo":
        from lanner.prep.sources.criteo import CriteoSource

        return CriteoSource()
    if name in ("csv", "parquet", "json"):
        from lanner.prep.sources.tabular import TabularSource

        return TabularSource(name)
    raise ConfigError(f"unknown source {name!r}: expected criteo, csv, parquet or json")
