"""The global shuffle on Spark: the order of `lanner.prep.shuffle`, by tasks that read and write the scratch folder.

Each task deals the rows of one run out by their random keys, into shares of adjacent keys. How many rows are in
which share of which run tells where any row of the order is, so that a part file needs a few shares of all runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from lanner.prep.chunk import RawChunk
from lanner.prep.plan import Plan
from lanner.prep.rows import join_chunks, take_rows
from lanner.prep.shuffle import keys_of, sorted_by_key, with_keys
from lanner.prep.spark.jobs import Jobs
from lanner.prep.stage import StagedFile, StageWriter
from lanner.prep.staged_rows import Cut, StagedRows
from lanner.schema import Schema

_RUN = 1 << 16, 1 << 22
"""Least and most rows of a run."""
_LEAST_SHARE = 1 << 12


@dataclass(frozen=True)
class ShuffledRows:
    """The training rows in their random order; `counts` (int64 [runs, shares]) says which folder holds how many."""

    folders: list[Path]
    counts: np.ndarray

    def read(self, cut: Cut) -> Iterator[RawChunk]:
        """The rows from `cut.start` on of that order, as chunks of any size."""
        ends = np.cumsum(self.counts.sum(axis=0))
        stop = cut.start + cut.rows
        for share in range(int(np.searchsorted(ends, cut.start, side="right")), int(np.searchsorted(ends, stop)) + 1):
            first = int(ends[share] - self.counts[:, share].sum())
            parts = list(self._parts(share))
            for chunk in sorted_by_key(join_chunks(parts)) if parts else ():
                begin, end = max(cut.start - first, 0), min(stop - first, chunk.rows)
                if begin < end:
                    yield take_rows(chunk, slice(begin, end))
                first += chunk.rows

    def _parts(self, share: int) -> Iterator[RawChunk]:
        for folder, counts in zip(self.folders, self.counts, strict=True):
            if counts[share]:
                yield _run(folder).read(int(np.count_nonzero(counts[:share])))


def shuffle(plan: Plan, rows: StagedRows, seed: int, folder: Path, jobs: Jobs) -> ShuffledRows:
    """Deal the training rows out below `folder`, in runs and shares that fit into the plan's memory a task."""
    count = rows.counts["train"]
    least, most = _RUN
    run_rows = min(max(plan.memory // 2 // _row_bytes(plan.schema), least), most)
    bits = max((count // _share_rows(plan)).bit_length(), 1)
    deal = partial(_deal, seed, bits, folder, jobs.broadcast(rows))
    dealt = jobs.map("shuffling", deal, rows.cuts("train", run_rows))
    return ShuffledRows([run for run, _ in dealt], np.stack([counts for _, counts in dealt]))


def _share_rows(plan: Plan) -> int:
    return max(plan.memory // 8 // _row_bytes(plan.schema), _LEAST_SHARE)


def _deal(seed: int, bits: int, folder: Path, rows: Any, cut: Cut) -> tuple[Path, np.ndarray]:
    """A run: its folder, named by the attempt, and the rows of each share (int64 [2^bits])."""
    run = join_chunks(list(with_keys(rows.value.read(cut), seed, cut.start)))
    shares = (keys_of(run) >> np.uint64(64 - bits)).astype(np.int64)
    counts = np.bincount(shares, minlength=1 << bits)
    order = np.argsort(shares, kind="stable")
    with StageWriter(folder / uuid4().hex, "", least_rows=1) as writer:
        for positions in np.split(order, np.cumsum(counts)[:-1]):
            writer.add(take_rows(run, positions))
        return writer.finish({}).folder, counts


@lru_cache(maxsize=1 << 12)
def _run(folder: Path) -> StagedFile:
    run = StagedFile.load(folder)
    assert run is not None, folder
    return run


def _row_bytes(schema: Schema) -> int:
    """About how many bytes a row takes in memory."""
    values = sum(feature.hotness or feature.max_hotness or 1 for feature in schema.sparse)
    return 32 + 4 * len(schema.labels) + 8 * len(schema.dense) + 9 * values
