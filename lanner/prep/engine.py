"""The engine: stage every file, fit on the training rows, encode, write; the manifest comes last."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from lanner import manifest as manifests
from lanner import storage
from lanner.errors import ConfigError
from lanner.manifest import FileEntry, Manifest
from lanner.prep.histories import with_histories
from lanner.prep.local import Local
from lanner.prep.plan import Plan
from lanner.prep.rejects import HEADER
from lanner.prep.report import NAME as REPORT
from lanner.prep.report import make_report, write_report
from lanner.prep.scratch import scratch_folder, scratch_path
from lanner.prep.split import SPLITS
from lanner.prep.stage import REJECTS, StagedFile
from lanner.prep.staged_rows import StagedRows
from lanner.prep.summary import FeatureCounts, FileSummary, PrepSummary
from lanner.schema import Schema

REJECTED = "rejects.tsv"


class Workers(Protocol):
    """Who does the heavy work of one run, in this order; what comes out does not depend on who it is."""

    def stage(self) -> list[StagedFile]:
        """Stage the files of the plan, in order, until its number of rows is reached.

        Raises DataError naming the file and lines at fault; files staged before that stay for the next run.
        """
        ...

    def fit(self, rows: StagedRows) -> Schema:
        """The schema with what was fitted on the rows filled in."""
        ...

    def save_vocabulary(self, table: str, uri: str) -> None:
        """Publish the vocabulary of a table, once fitted."""
        ...

    def write(self, rows: StagedRows, counts: FeatureCounts) -> dict[str, FileEntry]:
        """Encode and write all splits; returns the part files by path and adds to `counts`."""
        ...


def run(
    plan: Plan,
    overwrite: bool = False,
    quiet: bool = False,
    scratch: str | None = None,
    workers: Callable[[Plan, Path, bool], Workers] = Local,
) -> PrepSummary:
    """Carry out a plan; see `lanner.prep.prepare`. `workers` are made for the plan, its scratch folder and `quiet`."""
    start = time.perf_counter()
    if not overwrite:
        _check_place(plan.out, resuming=scratch_path(plan.out, scratch).exists())
    with scratch_folder(plan.out, scratch) as folder:
        work = workers(plan, folder, quiet)
        staged = work.stage()
        rows = StagedRows(with_histories(plan, staged, folder), plan)
        schema = work.fit(rows)
        _clear(plan.out)
        counts = FeatureCounts(schema)
        with ThreadPoolExecutor(1, "lanner-beside") as other:
            beside = other.submit(_write_beside, plan.out, schema, work, staged)
            entries = work.write(rows, counts)
            entries |= beside.result()
        summary = _summary(plan, rows, staged, counts)
        info = {"source": plan.source, "fit": plan.fit, "using": plan.using, **summary.to_dict()}
        del info["out"], info["seconds"]
        if plan.recipe != "lanner":
            info["recipe"] = plan.recipe
        if plan.shuffle is not None:
            info["shuffle"] = plan.shuffle
        write_report(make_report(plan.out, schema, entries, info), plan.out)
        made = Manifest(kind="dataset", fingerprint=schema.fingerprint(), files=entries, info=info)
        manifests.write(plan.out, made)
    summary.seconds = round(time.perf_counter() - start, 3)
    return summary


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
    for name in (manifests.NAME, "schema.yaml", REJECTED, REPORT):
        storage.remove_unpublished(out, name)
    for name in (REJECTED, REPORT):
        storage.remove(storage.join(out, name))


def _write_beside(out: str, schema: Schema, work: Workers, staged: list[StagedFile]) -> dict[str, FileEntry]:
    """Schema, vocabularies and rejected rows."""
    names = ["schema.yaml"]
    schema.save(storage.join(out, "schema.yaml"))
    for table in schema.tables:
        if table.vocabulary:
            work.save_vocabulary(table.name, storage.join(out, table.vocabulary))
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
        unmatched=sum(file.unmatched for file in staged) if plan.options.join else None,
    )
