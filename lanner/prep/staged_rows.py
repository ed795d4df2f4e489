"""`StagedRows`: everything staged, by split."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from lanner.errors import DataError
from lanner.prep.chunk import RawChunk
from lanner.prep.plan import Plan
from lanner.prep.rows import rows_where, take_rows
from lanner.prep.split import SPLITS
from lanner.prep.stage import StagedFile


class StagedRows:
    """All staged rows and the split each belongs to; `counts` are the rows of each split that has any.

    Raises DataError when there are no rows, none to train on, or none for a split that was asked for.
    """

    def __init__(self, staged: list[StagedFile], plan: Plan) -> None:
        self._staged = staged
        self.total = sum(file.rows for file in staged)
        if not self.total:
            raise DataError("no usable rows in " + (", ".join(file.file for file in staged) or "no files"))
        file_rows = [file.rows for file in staged]
        self._assignment = plan.split.bind(self.total, plan.file_splits, self._all_times, file_rows)
        counts = np.zeros(len(SPLITS), np.int64)
        for assigned, file, chunk in self._walk():
            if isinstance(assigned, int):
                counts[assigned] += file.chunks[chunk][2]
            else:
                counts += np.bincount(assigned, minlength=len(SPLITS))
        for split in plan.split.asked_for():
            if not counts[SPLITS.index(split)]:
                raise DataError(f"the {split} split is empty: none of {self.total} rows falls into it")
        self.counts = {split: int(count) for split, count in zip(SPLITS, counts, strict=True) if count}

    def of(self, split: str) -> Iterator[RawChunk]:
        """The rows of one split, in input order, as chunks of any size."""
        wanted = SPLITS.index(split)
        for assigned, file, chunk in self._walk():
            if isinstance(assigned, int):
                if assigned == wanted:
                    yield file.read(chunk)
            elif (rows := rows_where(assigned == wanted)) is not None:
                yield take_rows(file.read(chunk), rows)

    def all(self) -> Iterator[RawChunk]:
        """Every row, in input order."""
        for file in self._staged:
            yield from map(file.read, range(len(file.chunks)))

    def _all_times(self) -> np.ndarray:
        return np.concatenate([_times(file, chunk) for file in self._staged for chunk in range(len(file.chunks))])

    def _walk(self) -> Iterator[tuple[int | np.ndarray, StagedFile, int]]:
        first = 0
        for number, file in enumerate(self._staged):
            for chunk, (_, _, rows) in enumerate(file.chunks):
                yield self._assignment.of(number, first, rows, partial(_times, file, chunk)), file, chunk
                first += rows


def _times(file: StagedFile, chunk: int) -> np.ndarray:
    times = file.read(chunk).time
    assert times is not None
    return times
