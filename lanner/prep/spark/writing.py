"""Encoding on Spark: a task a part file, which holds the rows it holds in a local run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

from lanner import storage
from lanner.manifest import FileEntry
from lanner.prep.chunk import RawChunk
from lanner.prep.encoder import Encoder
from lanner.prep.local import encoded_batch
from lanner.prep.rows import batches
from lanner.prep.spark.jobs import Jobs
from lanner.prep.spark.shuffling import ShuffledRows
from lanner.prep.staged_rows import Cut, StagedRows
from lanner.prep.summary import FeatureCounts
from lanner.prep.vocabulary import Vocabulary
from lanner.prep.writer import BATCH_ROWS, PART_ROWS, DenseType, part_name, write_part
from lanner.schema import Schema

Part = tuple[int, Cut]


@dataclass(frozen=True)
class Encoding:
    """The fitted schema and the folder its vocabularies are in; `run` tells it from that of other runs."""

    schema: Schema
    folder: str
    run: str

    @classmethod
    def new(cls, schema: Schema, folder: str) -> Encoding:
        return cls(schema, folder, uuid4().hex)

    def vocabulary(self, table: str) -> Vocabulary:
        """Read the vocabulary of a table."""
        return Vocabulary.load(storage.join(self.folder, self.schema.table(table).vocabulary or ""))

    def encoder(self) -> Encoder:
        """The encoder, kept by this process for the tasks to come."""
        if self.run not in _kept:
            _kept.clear()
            tables = [table.name for table in self.schema.tables if table.vocabulary]
            _kept[self.run] = Encoder(self.schema, {table: self.vocabulary(table) for table in tables})
        return _kept[self.run]


_kept: dict[str, Encoder] = {}


@dataclass(frozen=True)
class Orders:
    """The rows of each split in the order they are written in: as they came, or `shuffled` for training."""

    rows: StagedRows
    shuffled: ShuffledRows | None

    def read(self, cut: Cut) -> Iterator[RawChunk]:
        if cut.split == "train" and self.shuffled is not None:
            return self.shuffled.read(cut)
        return self.rows.read(cut)


def write(
    encoding: Encoding, orders: Orders, out: str, dense_type: DenseType, counts: FeatureCounts, jobs: Jobs
) -> dict[str, FileEntry]:
    """See `lanner.prep.engine.Workers.write`; `out` must mean the same place to every worker."""
    rows = orders.rows
    parts = [part for split in rows.counts for part in enumerate(rows.cuts(split, PART_ROWS))]
    write_one = partial(_write_part, encoding, out, dense_type, jobs.broadcast(orders))
    entries = {}
    for (number, cut), (entry, missing, unknown) in zip(parts, jobs.map("writing", write_one, parts), strict=True):
        assert cut.split is not None
        entries[part_name(cut.split, number)] = entry
        counts.add(cut.split, missing, unknown)
    return entries


def _write_part(
    encoding: Encoding, out: str, dense_type: DenseType, orders: Any, part: Part
) -> tuple[FileEntry, np.ndarray, np.ndarray]:
    """The part's entry in the manifest, and how many values of each feature were missing and unknown."""
    encode = partial(encoded_batch, encoding.encoder(), dense_type)
    number, cut = part
    assert cut.split is not None
    sums: list[np.ndarray | int] = [0, 0]

    def encoded() -> Iterator[pa.RecordBatch]:
        for chunk in batches(orders.value.read(cut), BATCH_ROWS):
            batch, found = encode(chunk)
            sums[:] = [total + more for total, more in zip(sums, found, strict=True)]
            yield batch

    entry = write_part(out, part_name(cut.split, number), encoded())
    return entry, np.asarray(sums[0]), np.asarray(sums[1])
