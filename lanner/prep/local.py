"""`Local`: a run on this machine's threads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from lanner.kernels.numeric import count_missing
from lanner.manifest import FileEntry
from lanner.prep.chunk import RawChunk
from lanner.prep.encoder import Encoder
from lanner.prep.fit import fit
from lanner.prep.overlap import map_ordered
from lanner.prep.plan import Plan
from lanner.prep.rows import batches
from lanner.prep.shuffle import shuffled
from lanner.prep.stage import StagedFile
from lanner.prep.staged_rows import StagedRows
from lanner.prep.staging import stage_files
from lanner.prep.summary import FeatureCounts
from lanner.prep.writer import BATCH_ROWS, DenseType, PartWriter, record_batch
from lanner.progress import progress
from lanner.schema import Schema


class Local:
    """See `lanner.prep.engine.Workers`."""

    def __init__(self, plan: Plan, folder: Path, quiet: bool) -> None:
        self._plan, self._folder, self._quiet = plan, folder, quiet
        self._encoder: Encoder

    def stage(self) -> list[StagedFile]:
        return stage_files(self._plan, self._folder, self._quiet)

    def fit(self, rows: StagedRows) -> Schema:
        plan = self._plan
        if plan.using is not None:
            self._encoder = Encoder(plan.schema, Encoder.load(plan.using).vocabularies)
            return plan.schema
        counted = rows.total if plan.fit == "all" else rows.counts["train"]
        with progress("counting", counted, self._quiet) as bar:
            read = rows.all if plan.fit == "all" else partial(rows.of, "train")
            schema, vocabularies = fit(read, plan.schema, bar, plan.memory // 2)
        self._encoder = Encoder(schema, vocabularies)
        return schema

    def save_vocabulary(self, table: str, uri: str) -> None:
        self._encoder.vocabularies[table].save(uri)

    def write(self, rows: StagedRows, counts: FeatureCounts) -> dict[str, FileEntry]:
        entries: dict[str, FileEntry] = {}
        with ThreadPoolExecutor(1, "lanner-publish") as publisher:
            writers = [PartWriter(self._plan.out, split, publisher) for split in rows.counts]
            for writer in writers:
                self._write_split(rows, writer, counts)
            for writer in writers:
                entries |= writer.entries()
        return entries

    def _write_split(self, rows: StagedRows, writer: PartWriter, counts: FeatureCounts) -> None:
        encode, split = partial(encoded_batch, self._encoder, self._plan.dense_type), writer.split
        with progress(f"writing {split}", rows.counts[split], self._quiet) as bar, writer:
            for batch, (missing, unknown) in map_ordered(encode, batches(self._in_order(rows, split), BATCH_ROWS)):
                writer.write(batch)
                counts.add(split, missing, unknown)
                bar.advance(batch.num_rows)

    def _in_order(self, rows: StagedRows, split: str) -> Iterator[RawChunk]:
        """The rows of a split in the order they are written in."""
        plan = self._plan
        if split != "train" or plan.shuffle is None:
            return rows.of(split)
        return shuffled(rows.of(split), rows.counts[split], plan.shuffle, self._folder / "shuffle", plan.memory // 4)


def encoded_batch(
    encoder: Encoder, dense_type: DenseType, chunk: RawChunk
) -> tuple[pa.RecordBatch, tuple[np.ndarray, np.ndarray]]:
    """A record batch, and how many values of each feature were missing and unknown."""
    encoded = encoder.encode_chunk(chunk)
    missing = [*count_missing(chunk.dense), *(column.missing for column in encoded.ids)]
    unknown = [*([0] * chunk.dense.shape[1]), *(column.unknown for column in encoded.ids)]
    return record_batch(encoded, encoder.schema, dense_type), (np.array(missing, np.int64), np.array(unknown, np.int64))
