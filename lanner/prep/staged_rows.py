"""`StagedRows`: everything staged, by split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from lanner.errors import DataError
from lanner.prep.chunk import RawChunk
from lanner.prep.plan import Plan
from lanner.prep.rows import rows_where, take_rows
from lanner.prep.split import SPLITS
from lanner.prep.stage import StagedFile


@dataclass(frozen=True, slots=True)
class Cut:
    """`rows` adjacent rows of a split (None: of everything), from its row number `start` on.

    They lie in the staged chunks from `begin` to before `end`, after the first `skip` rows of the split there.
    """

    split: str | None
    start: int
    rows: int
    begin: int
    end: int
    skip: int


class StagedRows:
    """All staged rows and the split each belongs to; `counts` are the rows of each split that has any.

    Raises DataError when there are no rows, none to train on, or none for a split that was asked for.
    """

    def __init__(self, staged: list[StagedFile], plan: Plan) -> None:
        self._staged = staged
        self._places = [(number, at) for number, file in enumerate(staged) for at in range(len(file.chunks))]
        self._sizes = np.array([staged[number].chunks[at][2] for number, at in self._places], np.int64)
        self._first = np.cumsum(self._sizes) - self._sizes
        self.total = int(self._sizes.sum())
        if not self.total:
            raise DataError("no usable rows in " + (", ".join(file.file for file in staged) or "no files"))
        file_rows = [file.rows for file in staged]
        self._assignment = plan.split.bind(self.total, plan.file_splits, self._all_times, file_rows)
        self._shares = np.zeros((len(self._places), len(SPLITS)), np.int64)
        for place, share in enumerate(self._shares):
            assigned = self._assigned(place)
            if isinstance(assigned, int):
                share[assigned] = self._sizes[place]
            else:
                share[:] = np.bincount(assigned, minlength=len(SPLITS))
        counts = self._shares.sum(axis=0)
        for split in plan.split.asked_for():
            if not counts[SPLITS.index(split)]:
                raise DataError(f"the {split} split is empty: none of {self.total} rows falls into it")
        self.counts = {split: int(count) for split, count in zip(SPLITS, counts, strict=True) if count}

    def of(self, split: str, begin: int = 0, end: int | None = None) -> Iterator[RawChunk]:
        """The rows of one split, in input order, as chunks of any size; those of the staged chunks `begin` to `end`."""
        wanted = SPLITS.index(split)
        for place in range(*slice(begin, end).indices(len(self._places))):
            if self._shares[place, wanted] == self._sizes[place]:
                yield self._chunk(place)
            elif self._shares[place, wanted]:
                rows = rows_where(np.equal(self._assigned(place), wanted))
                assert rows is not None
                yield take_rows(self._chunk(place), rows)

    def all(self, begin: int = 0, end: int | None = None) -> Iterator[RawChunk]:
        """Every row, in input order; those of the staged chunks `begin` to `end`."""
        yield from map(self._chunk, range(*slice(begin, end).indices(len(self._places))))

    def cuts(self, split: str | None, rows: int) -> list[Cut]:
        """The rows of a split (None: of everything) in pieces of `rows` rows; the last one may be shorter."""
        sizes = self._sizes if split is None else self._shares[:, SPLITS.index(split)]
        ends = np.cumsum(sizes)
        cuts = []
        for start in range(0, int(ends[-1]), rows):
            stop = min(start + rows, int(ends[-1]))
            begin = int(np.searchsorted(ends, start, side="right"))
            skip = start - int(ends[begin] - sizes[begin])
            cuts.append(Cut(split, start, stop - start, begin, int(np.searchsorted(ends, stop)) + 1, skip))
        return cuts

    def read(self, cut: Cut) -> Iterator[RawChunk]:
        """The rows of one of `cuts`, in order, as chunks of any size."""
        chunks = self.all(cut.begin, cut.end) if cut.split is None else self.of(cut.split, cut.begin, cut.end)
        skip, left = cut.skip, cut.rows
        for chunk in chunks:
            stop = min(chunk.rows, skip + left)
            yield take_rows(chunk, slice(skip, stop))
            skip, left = 0, left - (stop - skip)

    def _chunk(self, place: int) -> RawChunk:
        number, at = self._places[place]
        return self._staged[number].read(at)

    def _times(self, place: int) -> np.ndarray:
        times = self._chunk(place).time
        assert times is not None
        return times

    def _all_times(self) -> np.ndarray:
        return np.concatenate([self._times(place) for place in range(len(self._places))])

    def _assigned(self, place: int) -> int | np.ndarray:
        number, _ = self._places[place]
        first, rows = int(self._first[place]), int(self._sizes[place])
        return self._assignment.of(number, first, rows, partial(self._times, place))
