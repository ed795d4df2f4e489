"""The engine: stage every file, fit on the training rows, encode, write; the manifest comes last."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from lanner import manifest as manifests
from lanner import storage
from lanner.errors import ConfigError
from lanner.kernels.numeric import count_missing
from lanner.manifest import FileEntry, Manifest
from lanner.prep.chunk import RawChunk
from lanner.prep.encoder import Encoder
from lanner.prep.fit import fit
from lanner.prep.overlap import map_ordered
from lanner.prep.plan import Plan
from lanner.prep.rejects import HEADER
from lanner.prep.rows import batches
from lanner.prep.scratch import scratch_folder, scratch_path
from lanner.prep.shuffle import shuffled
from lanner.prep.split import SPLITS
from lanner.prep.stage import REJECTS, StagedFile
from lanner.prep.staged_rows import StagedRows
from lanner.prep.staging import stage_files
from lanner.prep.summary import FeatureCounts, FileSummary, PrepSummary
from lanner.prep.writer import BATCH_ROWS, DenseType, PartWriter, record_batch
from lanner.progress import progress

REJECTED = "rejects.tsv"


def run(plan: Plan, overwrite: bool = False, quiet: bool = False, scratch: str | None = None) -> PrepSummary:
    """Carry out a plan; see `lanner.prep.prepare`."""
    start = time.perf_counter()
    if not overwrite:
        _check_place(plan.out, resuming=scratch_path(plan.out, scratch).exists())
    with scratch_folder(plan.out, scratch) as folder:
        staged = stage_files(plan, folder, quiet)
        rows = StagedRows(staged, plan)
        encoder = _encoder(plan, rows, quiet)
        _clear(plan.out)
        counts = FeatureCounts(encoder.schema)
        entries: dict[str, FileEntry] = {}
        with ThreadPoolExecutor(1, "lanner-beside") as other, ThreadPoolExecutor(1, "lanner-publish") as publisher:
            beside = other.submit(_write_beside, plan.out, encoder, staged)
            writers = [PartWriter(plan.out, split, publisher) for split in rows.counts]
            for writer in writers:
                chunks = _in_order(plan, rows, writer.split, folder)
                _write_split(plan, encoder, chunks, rows.counts[writer.split], writer, counts, quiet)
            for writer in writers:
                entries |= writer.entries()
            entries |= beside.result()
        summary = _summary(plan, rows, staged, counts)
        info = {"source": plan.source, "fit": plan.fit, "using": plan.using, **summary.to_dict()}
        del info["out"], info["seconds"]
        if plan.recipe != "lanner":
            info["recipe"] = plan.recipe
        if plan.shuffle is not None:
            info["shuffle"] = plan.shuffle
        made = Manifest(kind="dataset", fingerprint=encoder.schema.fingerprint(), files=entries, info=info)
        manifests.write(plan.out, made)
    summary.seconds = round(time.perf_counter() - start, 3)
    return summary


def _encoder(plan: Plan, rows: StagedRows, quiet: bool) -> Encoder:
    if plan.using is not None:
        return Encoder(plan.schema, Encoder.load(plan.using).vocabularies)
    counted = rows.total if plan.fit == "all" else rows.counts["train"]
    with progress("counting", counted, quiet) as bar:
        read = rows.all if plan.fit == "all" else partial(rows.of, "train")
        schema, vocabularies = fit(read, plan.schema, bar, plan.memory // 2)
    return Encoder(schema, vocabularies)


def _check_place(out: str, resuming: bool) -> None:
    """Refuse to write over a finished dataset or, unless an interrupted run is resumed, over files of others."""
    if storage.exists(storage.join(out, manifests.NAME)):
        raise ConfigError(f"{out} already holds a finished dataset; choose another place or overwrite it")
    for name in (*SPLITS, "vocab", "schema.yaml", REJECTED):
        if not resuming and storage.exists(storage.join(out, name)):
            raise ConfigError(f"{out} holds {name}, but no finished dataset; choose another place or overwrite it")


def _clear(out: str) -> None:
    """Remove an older dataset, its manifest first, and what an interrupted run left of one; nothing else."""
    storage.remove(storage.join(out, manifests.NAME))
    for folder in (*SPLITS, "vocab"):
        storage.remove_unpublished(storage.join(out, folder))
        if storage.exists(storage.join(out, folder)):
            for name in storage.list_files(storage.join(out, folder)):
                if name.startswith("part-") or (folder == "vocab" and name.endswith(".parquet")):
                    storage.remove(storage.join(out, folder, name))
    for name in (manifests.NAME, "schema.yaml", REJECTED):
        storage.remove_unpublished(out, name)
    storage.remove(storage.join(out, REJECTED))


def _in_order(plan: Plan, rows: StagedRows, split: str, folder: Path) -> Iterator[RawChunk]:
    """The rows of a split in the order they are written in."""
    if split != "train" or plan.shuffle is None:
        return rows.of(split)
    return shuffled(rows.of(split), rows.counts[split], plan.shuffle, folder / "shuffle", plan.memory // 4)


def _write_split(
    plan: Plan,
    encoder: Encoder,
    chunks: Iterator[RawChunk],
    rows: int,
    writer: PartWriter,
    counts: FeatureCounts,
    quiet: bool,
) -> None:
    encode, split = partial(_encode, encoder, plan.dense_type), writer.split
    with progress(f"writing {split}", rows, quiet) as bar, writer:
        for batch, (missing, unknown) in map_ordered(encode, batches(chunks, BATCH_ROWS)):
            writer.write(batch)
            counts.add(split, missing, unknown)
            bar.advance(batch.num_rows)


def _encode(
    encoder: Encoder, dense_type: DenseType, chunk: RawChunk
) -> tuple[pa.RecordBatch, tuple[np.ndarray, np.ndarray]]:
    """A record batch, and how many values of each feature were missing and unknown."""
    encoded = encoder.encode_chunk(chunk)
    missing = [*count_missing(chunk.dense), *(column.missing for column in encoded.ids)]
    unknown = [*([0] * chunk.dense.shape[1]), *(column.unknown for column in encoded.ids)]
    return record_batch(encoded, encoder.schema, dense_type), (np.array(missing, np.int64), np.array(unknown, np.int64))


def _write_beside(out: str, encoder: Encoder, staged: list[StagedFile]) -> dict[str, FileEntry]:
    """Schema, vocabularies and rejected rows."""
    names = ["schema.yaml"]
    encoder.schema.save(storage.join(out, "schema.yaml"))
    for table in encoder.schema.tables:
        if table.vocabulary:
            encoder.vocabularies[table.name].save(storage.join(out, table.vocabulary))
            names.append(table.vocabulary)
    if any(file.rejected for file in staged):
        names.append(REJECTED)
        with storage.publish(storage.join(out, REJECTED)) as sink:
            sink.write(HEADER)
            for file in staged:
                if file.rejected:
                    sink.write((file.folder / REJECTS).read_bytes())
    return {name: manifests.entry(out, name) for name in names}


def _summary(plan: Plan, rows: StagedRows, staged: list[StagedFile], counts: FeatureCounts) -> PrepSummary:
    rejected: dict[str, int] = {}
    for file in staged:
        for reason, count in file.rejected.items():
            rejected[reason] = rejected.get(reason, 0) + count
    return PrepSummary(
        out=plan.out,
        rows=rows.counts,
        files=[FileSummary(file.file, file.rows, file.rejected, file.reused) for file in staged],
        rejected=rejected,
        features=counts.summaries(),
        split=plan.split.describe(),
    )
