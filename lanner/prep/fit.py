"""Fitting: vocabularies and dense statistics from the training rows, and the schema they complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from urllib.parse import quote

from lanner.kernels import parallel
from lanner.prep.chunk import RawChunk
from lanner.prep.counts import Counts
from lanner.prep.encoder import Count, table_rows
from lanner.prep.statistics import DenseStatistics
from lanner.prep.vocabulary import Vocabulary
from lanner.progress import Bar
from lanner.schema import Schema, Table


def fit(
    read: Callable[[], Iterable[RawChunk]], schema: Schema, bar: Bar, memory: int
) -> tuple[Schema, dict[str, Vocabulary]]:
    """`schema` with table sizes and transform parameters filled in, and the vocabulary of each table that has one.

    `read` gives the training rows, from the start each time it is called: tables whose counts do not fit into
    `memory` bytes together with the others' are counted again, some of their values at a time.
    """
    statistics = DenseStatistics(schema)
    counts = Counts(schema, memory)
    for chunk in read():
        work = counts.work(chunk)
        if statistics.needed:
            work.append(partial(statistics.add, chunk.dense))
        if work:
            parallel.run_all(work)
        counts.drop_largest()
        bar.advance(chunk.rows)
    vocabularies = counts.vocabularies(read)
    sizes = {table: table_rows(schema.features_of(table)[0], found) for table, found in vocabularies.items()}
    return with_tables(statistics.fit(schema), sizes), vocabularies


def with_tables(schema: Schema, sizes: Mapping[str, Count]) -> Schema:
    """`schema` with rows (and the vocabulary's file) filled in for every table; `sizes` are of those with one."""
    tables = []
    for table in schema.tables:
        rows = sizes[table.name] if table.name in sizes else table_rows(schema.features_of(table.name)[0])
        file = vocabulary_file(table.name) if table.name in sizes else None
        tables.append(Table(name=table.name, rows=rows, vocabulary=file))
    return schema.model_copy(update={"tables": tuple(tables)})


def vocabulary_file(table: str) -> str:
    """Where a dataset has the vocabulary of `table`."""
    return f"vocab/{quote(table, safe=' ')}.parquet"
