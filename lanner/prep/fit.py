"""Fitting: vocabularies and dense statistics from the training rows, and the schema they complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from urllib.parse import quote

from lanner.kernels import parallel
from lanner.prep.chunk import RawChunk
from lanner.prep.counting import TableCounter
from lanner.prep.encoder import table_rows
from lanner.prep.statistics import DenseStatistics
from lanner.prep.vocabulary import Vocabulary
from lanner.progress import Bar
from lanner.schema import Schema, Sparse, Table, VocabEncoder


def fit(chunks: Iterable[RawChunk], schema: Schema, bar: Bar) -> tuple[Schema, dict[str, Vocabulary]]:
    """`schema` with table sizes and transform parameters filled in, and the vocabulary of each table that has one."""
    statistics = DenseStatistics(schema)
    counters = {table: TableCounter(features[0].raw) for table, features in _vocab_tables(schema).items()}
    columns = {table: [k for k, f in enumerate(schema.sparse) if f.table_name == table] for table in counters}
    for chunk in chunks:
        work: list[Callable[[], None]] = [
            partial(_count, counter, chunk, columns[table]) for table, counter in counters.items()
        ]
        if statistics.needed:
            work.append(partial(statistics.add, chunk.dense))
        if work:
            parallel.run_all(work)
        bar.advance(chunk.rows)
    vocabularies = {table: Vocabulary.fit(counter, _encoder(schema, table)) for table, counter in counters.items()}
    return with_tables(statistics.fit(schema), vocabularies), vocabularies


def with_tables(schema: Schema, vocabularies: dict[str, Vocabulary]) -> Schema:
    """`schema` with rows (and the vocabulary's file) filled in for every table."""
    tables = []
    for table in schema.tables:
        feature = schema.features_of(table.name)[0]
        vocabulary = vocabularies.get(table.name)
        file = None if vocabulary is None else f"vocab/{quote(table.name, safe=' ')}.parquet"
        tables.append(Table(name=table.name, rows=table_rows(feature, vocabulary), vocabulary=file))
    return schema.model_copy(update={"tables": tuple(tables)})


def _vocab_tables(schema: Schema) -> dict[str, tuple[Sparse, ...]]:
    features = {table.name: schema.features_of(table.name) for table in schema.tables}
    return {name: sharing for name, sharing in features.items() if isinstance(sharing[0].encoder, VocabEncoder)}


def _encoder(schema: Schema, table: str) -> VocabEncoder:
    encoder = schema.features_of(table)[0].encoder
    assert isinstance(encoder, VocabEncoder)
    return encoder


def _count(counter: TableCounter, chunk: RawChunk, columns: list[int]) -> None:
    for column in columns:
        counter.add(chunk.sparse[column])
