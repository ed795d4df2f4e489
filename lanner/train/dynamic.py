"""What became of the dynamic tables of a model, in numbers."""

from __future__ import annotations

from dataclasses import asdict, fields

from lanner.embedding import EmbeddingCollection
from lanner.embedding.dynamic.counters import Counters
from lanner.embedding.dynamic.table import DynamicTable
from lanner.train.processes import Processes

_NUMBERS = ("rows", "bytes", *(field.name for field in fields(Counters)))


def summary(embedding: EmbeddingCollection) -> dict[str, dict[str, int]]:
    """By table: its `rows` and `bytes` now, and its counters (see `lanner.embedding.dynamic.counters`).

    Empty without dynamic tables. Of a table on several processes these are the sums over all; all must ask.
    """
    names = [table.name for table in embedding.tables if table.rows == "dynamic"]
    if not names:
        return {}
    own = [number for name in names for number in _own(embedding, name)]
    sums = Processes(embedding.wire).tell(lambda: own, len(own)).sum(0).reshape(len(names), -1)
    return {name: dict(zip(_NUMBERS, row, strict=True)) for name, row in zip(names, sums.tolist(), strict=True)}


def _own(embedding: EmbeddingCollection, name: str) -> list[int]:
    """The numbers of what this process holds; rows are counted where their first columns are."""
    table = embedding.store(name)
    if not isinstance(table, DynamicTable):
        return [0] * len(_NUMBERS)
    if embedding.shards[name].block:
        return [0, table.nbytes(), *[0] * len(fields(Counters))]
    return [len(table), table.nbytes(), *asdict(table.counters).values()]
