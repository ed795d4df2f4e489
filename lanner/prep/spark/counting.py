"""Counting on Spark: each task counts its rows, then counts of equal values meet in one shuffle.

The shuffle moves (table, share) → distinct keys and their counts; a value that is in every row is one entry a task, so
that skew costs nothing. Values seen often enough then go on to the task that numbers their table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lanner import storage
from lanner.kernels import parallel
from lanner.kernels.hashing import bucket
from lanner.prep.counting import TableCounter
from lanner.prep.counts import NUMBER_BYTES, TEXT_BYTES, Counts
from lanner.prep.encoder import table_rows
from lanner.prep.fit import vocabulary_file, with_tables
from lanner.prep.plan import Plan
from lanner.prep.spark.jobs import Jobs
from lanner.prep.staged_rows import Cut, StagedRows
from lanner.prep.statistics import DenseStatistics
from lanner.prep.vocabulary import Vocabulary
from lanner.schema import Schema, VocabEncoder

_SEED = 2
_LEAST_ROWS = 1 << 16
"""Rows worth a counting task."""
_STATISTICS = -1
"""Stands for a table in the keys of what is not counts."""
_SHARES = 2, 8
"""Least and most shares for each task that runs at once."""

Key = tuple[int, int]
"""Number of the table (by its place among those with a vocabulary) and of the share of its values."""


@dataclass(frozen=True)
class Counting:
    """What the tasks need; `folder` is where vocabularies go."""

    schema: Schema
    tables: list[str]
    shares: int
    numberers: int
    memory: int
    folder: Path

    def encoder(self, table: int) -> VocabEncoder:
        encoder = self.schema.features_of(self.tables[table])[0].encoder
        assert isinstance(encoder, VocabEncoder)
        return encoder

    def counter(self, table: int) -> TableCounter:
        raw = self.schema.features_of(self.tables[table])[0].raw
        return TableCounter(raw, self.encoder(table).order == "seen")

    def share_of(self, key: Key) -> int:
        return sum(key) % self.shares

    def numberer_of(self, key: Key) -> int:
        return key[0] % self.numberers


def fit(plan: Plan, rows: StagedRows, folder: Path, jobs: Jobs) -> Schema:
    """The fitted schema; its vocabularies lie in `folder` then, as they do in a dataset."""
    schema = plan.schema
    split = None if plan.fit == "all" else "train"
    counted = rows.total if split is None else rows.counts[split]
    tables = list(dict.fromkeys(f.table_name for f in schema.sparse if isinstance(f.encoder, VocabEncoder)))
    if not tables and not DenseStatistics(schema).needed:
        return with_tables(schema, {})
    work = Counting(schema, tables, *_parts(schema, tables, counted, plan.memory, jobs), plan.memory // 2, folder)
    tasks = min(-(-counted // _LEAST_ROWS), 4 * jobs.parallelism)
    cuts = rows.cuts(split, -(-counted // tasks))
    pieces = jobs.tasks(cuts, partial(_count, work, jobs.broadcast(rows)))
    shares = pieces.partitionBy(work.shares, work.share_of).mapPartitions(partial(_merge, work))
    done = shares.partitionBy(work.numberers, work.numberer_of).mapPartitions(partial(_number, work))
    statistics, sizes = DenseStatistics(schema), {}
    for (table, _), found in sorted(jobs.collect("counting", done), key=lambda item: item[0]):
        if table == _STATISTICS:
            statistics.merge(DenseStatistics.restore(schema, found))
        else:
            sizes[tables[table]] = found
    return with_tables(statistics.fit(schema), {table: sizes[table] for table in tables})


def _parts(schema: Schema, tables: list[str], rows: int, memory: int, jobs: Jobs) -> tuple[int, int]:
    """Number of shares, so that the counts of one fit into memory, were all values different; and of numberers."""
    texts = sum(schema.features_of(table)[0].raw == "string" for table in tables)
    most = rows * (TEXT_BYTES * texts + NUMBER_BYTES * (len(tables) - texts))
    least, limit = (factor * jobs.parallelism for factor in _SHARES)
    return min(max(-(-most // (memory // 2)), least), limit), max(min(len(tables), least), 1)


def _count(work: Counting, rows: Any, cut: Cut) -> Iterator[tuple[Key, Any]]:
    statistics = DenseStatistics(work.schema)
    counts = Counts(work.schema, work.memory, cut.start)
    for chunk in rows.value.read(cut):
        calls = counts.work(chunk)
        if statistics.needed:
            calls.append(partial(statistics.add, chunk.dense))
        if calls:
            parallel.run_all(calls)
        if counts.too_large:
            yield from _pieces(work, counts.take())
    yield from _pieces(work, counts.take())
    if statistics.needed:
        yield (_STATISTICS, cut.start), statistics.state()


def _pieces(work: Counting, counters: dict[str, TableCounter]) -> Iterator[tuple[Key, bytes]]:
    """The counts of each table by share of its values."""
    for number, name in enumerate(work.tables):
        table = counters[name].table()
        shares = bucket(table["key"].to_numpy(), _SEED, work.shares)
        order = np.argsort(shares, kind="stable")
        ends = np.cumsum(np.bincount(shares, minlength=work.shares))
        for share, positions in enumerate(np.split(order, ends[:-1])):
            if len(positions):
                yield (number, share), _packed(table.take(pa.array(positions)))


def _merge(work: Counting, pieces: Iterable[tuple[Key, Any]]) -> Iterator[tuple[Key, Any]]:
    """The values of whole shares that are frequent enough for an id."""
    counters: dict[Key, TableCounter] = {}
    for key, found in pieces:
        if key[0] == _STATISTICS:
            yield key, found
            continue
        if key not in counters:
            counters[key] = work.counter(key[0])
        counters[key].add_table(_unpacked(found))
    while counters:
        key, counter = counters.popitem()
        yield key, _packed(counter.frequent(work.encoder(key[0]).min_count).table())


def _number(work: Counting, shares: Iterable[tuple[Key, Any]]) -> Iterator[tuple[Key, Any]]:
    """Save the vocabularies of whole tables; gives the rows of their embedding tables."""
    counters: dict[int, TableCounter] = {}
    for key, found in shares:
        if key[0] == _STATISTICS:
            yield key, found
            continue
        counters.setdefault(key[0], work.counter(key[0])).add_table(_unpacked(found))
    for number, counter in counters.items():
        vocabulary = Vocabulary.fit(counter, work.encoder(number))
        name = work.tables[number]
        vocabulary.save(storage.join(work.folder, vocabulary_file(name)))
        yield (number, 0), table_rows(work.schema.features_of(name)[0], vocabulary)


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpacked(packed: bytes) -> pa.Table:
    return pa.ipc.open_stream(packed).read_all()
