"""`SparkWorkers`: a run on a Spark cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lanner import storage
from lanner.manifest import FileEntry
from lanner.prep.plan import Plan
from lanner.prep.spark.counting import fit
from lanner.prep.spark.jobs import Jobs
from lanner.prep.spark.shuffling import shuffle
from lanner.prep.spark.staging import check_workers, stage
from lanner.prep.spark.writing import Encoding, Orders, write
from lanner.prep.stage import StagedFile
from lanner.prep.staged_rows import StagedRows
from lanner.prep.summary import FeatureCounts
from lanner.schema import Schema


class SparkWorkers:
    """See `lanner.prep.engine.Workers`."""

    def __init__(self, context: Any, plan: Plan, folder: Path, _quiet: bool) -> None:
        self._jobs, self._plan, self._folder = Jobs(context), plan, folder
        self._encoding: Encoding

    def stage(self) -> list[StagedFile]:
        check_workers(self._jobs, self._folder)
        return stage(self._plan, self._folder, self._jobs)

    def fit(self, rows: StagedRows) -> Schema:
        plan = self._plan
        if plan.using is not None:
            self._encoding = Encoding.new(plan.schema, _absolute(plan.using))
        else:
            folder = self._folder / "fitted"
            self._encoding = Encoding.new(fit(plan, rows, folder, self._jobs), str(folder))
        return self._encoding.schema

    def save_vocabulary(self, table: str, uri: str) -> None:
        self._encoding.vocabulary(table).save(uri)

    def write(self, rows: StagedRows, counts: FeatureCounts) -> dict[str, FileEntry]:
        plan = self._plan
        shuffled = None
        if plan.shuffle is not None and "train" in rows.counts:
            shuffled = shuffle(plan, rows, plan.shuffle, self._folder / "shuffle", self._jobs)
        return write(self._encoding, Orders(rows, shuffled), _absolute(plan.out), plan.dense_type, counts, self._jobs)


def _absolute(uri: str) -> str:
    return str(storage.local_path(uri).absolute()) if storage.is_local(uri) else uri
