"""What became of the tables of a model that are not plain arrays, in numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields

from lanner.embedding import EmbeddingCollection
from lanner.embedding.backed.table import BackedTable
from lanner.embedding.backed.traffic import Traffic
from lanner.embedding.dynamic.counters import Counters
from lanner.embedding.dynamic.table import DynamicTable
from lanner.train.processes import Processes

Numbers = dict[str, dict[str, int]]
"""Numbers of single tables, by the table's name."""

_OF_DYNAMIC = ("rows", "bytes", *(field.name for field in fields(Counters)))
_OF_DISK = ("bytes", "disk_bytes", *(field.name for field in fields(Traffic)))


def summary(embedding: EmbeddingCollection) -> dict[str, Numbers]:
    """`dynamic_tables` and `tables_on_disk`, each only where there are such tables. All processes must ask."""
    found = {"dynamic_tables": dynamic(embedding), "tables_on_disk": on_disk(embedding)}
    return {kind: tables for kind, tables in found.items() if tables}


def dynamic(embedding: EmbeddingCollection) -> Numbers:
    """By dynamic table: its `rows` and `bytes` now, and its counters (see `lanner.embedding.dynamic.counters`).

    Of a table on several processes these are the sums over all; all must ask.
    """

    def own(name: str) -> Sequence[int]:
        """Rows are counted where their first columns are."""
        table = embedding.store(name)
        if not isinstance(table, DynamicTable):
            return [0] * len(_OF_DYNAMIC)
        if embedding.shards[name].block:
            return [0, table.nbytes(), *[0] * len(fields(Counters))]
        return [len(table), table.nbytes(), *asdict(table.counters).values()]

    names = [table.name for table in embedding.tables if table.rows == "dynamic"]
    return _sums(embedding, names, _OF_DYNAMIC, own)


def on_disk(embedding: EmbeddingCollection) -> Numbers:
    """By table on disk: `bytes` of memory and `disk_bytes` now, and its `lanner.embedding.backed.traffic.Traffic`.

    Of a table on several processes these are the sums over those that have it on disk; all must ask.
    """

    def own(name: str) -> Sequence[int]:
        table = embedding.store(name)
        if not isinstance(table, BackedTable):
            return [0] * len(_OF_DISK)
        return [table.nbytes(), table.disk_bytes(), *asdict(table.traffic).values()]

    names = [table.name for table in embedding.tables if table.rows != "dynamic"]
    found = _sums(embedding, names, _OF_DISK, own)
    return {name: numbers for name, numbers in found.items() if numbers["bytes"]}


def _sums(
    embedding: EmbeddingCollection, names: Sequence[str], columns: Sequence[str], own: Callable[[str], Sequence[int]]
) -> Numbers:
    """The sums over all processes of what `own` says of each table here."""
    if not names:
        return {}
    here = [number for name in names for number in own(name)]
    sums = Processes(embedding.wire).tell(lambda: here, len(here)).sum(0).reshape(len(names), -1)
    return {name: dict(zip(columns, row, strict=True)) for name, row in zip(names, sums.tolist(), strict=True)}
