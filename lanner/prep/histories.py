"""Histories: for each row the last values of a feature in the earlier rows of the same group (user, session).

Earlier means strictly earlier in time, so that rows of one moment do not see each other. Values come oldest first,
those of one moment in the order of the input. Rows without a value, and those whose `where` label is 0, see histories
but leave nothing in them. Groups are dealt out into shares on disk; one share is in memory at a time, and no less than
the rows of one group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from lanner.kernels.hashing import bucket
from lanner.prep.assemble import group_keys
from lanner.prep.chunk import Keys, RawChunk
from lanner.prep.plan import Plan
from lanner.prep.rows import join_chunks, take_rows
from lanner.prep.stage import StagedFile, StageWriter
from lanner.schema import Schema, Sparse

_SEED = 2
_ROW_BYTES = 200
"""Bytes of memory a row takes while histories are made, and as many for each value of its history."""
_MOST_SHARES = 512
_PIECE = 1 << 12


def with_histories(plan: Plan, staged: list[StagedFile], folder: Path) -> list[StagedFile]:
    """The staged files, once more below the scratch folder, with histories beside what was read.

    The files as they are where the plan's schema has no histories, or where they were read.
    """
    if not plan.builds_histories:
        return staged
    schema, folder = plan.schema, folder / "histories"
    shares = _shares(schema, staged, folder / "events", plan.memory // 4)
    streams = [_Stream(_histories(schema, share, folder / "made")) for share in shares]
    first, written = 0, list[StagedFile]()
    for number, file in enumerate(staged):
        with StageWriter(folder / f"{number:05d}", file.file) as writer:
            for at in range(len(file.chunks)):
                chunk = file.read(at)
                found = [part for stream in streams for part in stream.until(first + chunk.rows)]
                writer.add(_joined(schema, chunk, join_chunks(found)))
                first += chunk.rows
            written.append(writer.finish({}))
    return written


def _wanted(schema: Schema) -> list[Sparse]:
    return [feature for feature in schema.sparse if feature.history is not None]


def _shares(schema: Schema, staged: list[StagedFile], folder: Path, memory: int) -> list[StagedFile]:
    """The events of all files by group: row numbers, the values of each feature wanted, group and time."""
    rows = sum(file.rows for file in staged)
    values = sum(1 + (feature.max_hotness or 0) for feature in _wanted(schema))
    count = min(max(-(-rows * (_ROW_BYTES + 24 * values) // memory), 1), _MOST_SHARES)
    with ExitStack() as opened:
        writers = [opened.enter_context(StageWriter(folder / f"{at:03d}", "")) for at in range(count)]
        first = 0
        for chunk in (file.read(at) for file in staged for at in range(len(file.chunks))):
            events = _events(schema, chunk, first)
            assert events.group is not None
            share = bucket(events.group, _SEED, count)
            for at in np.unique(share).tolist():
                writers[at].add(take_rows(events, np.flatnonzero(share == at)))
            first += chunk.rows
        return [writer.finish({}) for writer in writers]


def _events(schema: Schema, chunk: RawChunk, first: int) -> RawChunk:
    read = [feature for feature in schema.sparse if feature.history is None]
    labels = [label.name for label in schema.labels]
    sparse = [Keys(np.arange(first, first + chunk.rows))]
    for feature in _wanted(schema):
        assert feature.history is not None
        keys = chunk.sparse[[other.name for other in read].index(feature.history.of)]
        absent = chunk.group == group_keys(pa.array([""]))[0]  # nobody's rows have nothing to do with each other
        if keys.missing is not None:
            absent |= keys.missing
        if feature.history.where is not None:
            absent |= chunk.labels[:, labels.index(feature.history.where)] <= 0
        sparse.append(Keys(keys.keys.astype(np.int64), absent))
    nothing = np.zeros((chunk.rows, 0))
    return RawChunk(chunk.rows, nothing.astype(np.float32), nothing, sparse, group=chunk.group, time=chunk.time)


def _histories(schema: Schema, share: StagedFile, folder: Path) -> Iterator[RawChunk]:
    """Row numbers, rising, and the histories of the rows of a share, by way of a file."""
    if share.rows:
        events = join_chunks([share.read(at) for at in range(len(share.chunks))])
        with StageWriter(folder / share.folder.name, "", _PIECE) as writer:
            found = history_rows(events, [feature.max_hotness or 0 for feature in _wanted(schema)])
            for first in range(0, found.rows, _PIECE):
                writer.add(take_rows(found, slice(first, min(first + _PIECE, found.rows))))
            made = writer.finish({})
        del events, found
        yield from (made.read(at) for at in range(len(made.chunks)))


def history_rows(events: RawChunk, last: list[int]) -> RawChunk:
    """Row numbers (rising) and bags of the last values before each of `events`: row numbers, values, group, time."""
    rows, group, time = events.sparse[0].keys, events.group, events.time
    assert group is not None and time is not None
    order = np.lexsort((rows, time, group))
    group, time = group[order], time[order]
    new_group = np.concatenate([[True], group[1:] != group[:-1]])
    new_moment = new_group | np.concatenate([[True], time[1:] != time[:-1]])
    positions = np.arange(len(order))
    group_start = np.maximum.accumulate(np.where(new_group, positions, 0))
    moment_start = np.maximum.accumulate(np.where(new_moment, positions, 0))
    back = np.argsort(rows[order])
    bags = [Keys(rows[order][back])]
    for keys, most in zip(events.sparse[1:], last, strict=True):
        present = ~keys.missing[order] if keys.missing is not None else np.ones(len(order), np.bool_)
        before = np.concatenate([[0], np.cumsum(present)])
        values = keys.keys[order][present]
        ends = before[moment_start][back]
        starts = np.maximum(before[group_start][back], ends - most)
        offsets = np.concatenate([[0], np.cumsum(ends - starts)])
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], ends - starts)
        bags.append(Keys(values[places], offsets=offsets))
    nothing = np.zeros((len(order), 0))
    return RawChunk(len(order), nothing.astype(np.float32), nothing, bags)


class _Stream:
    """Rows of one share, taken in order of their numbers."""

    def __init__(self, chunks: Iterable[RawChunk]) -> None:
        self._chunks = iter(chunks)
        self._held: RawChunk | None = None

    def until(self, end: int) -> Iterator[RawChunk]:
        """The rows with numbers below `end` that were not taken yet."""
        while (held := self._held or next(self._chunks, None)) is not None:
            cut = int(np.searchsorted(held.sparse[0].keys, end))
            self._held = None if cut == held.rows else take_rows(held, slice(cut, held.rows))
            if cut:
                yield take_rows(held, slice(0, cut))
            if self._held is not None:
                return


def _joined(schema: Schema, chunk: RawChunk, found: RawChunk) -> RawChunk:
    """`chunk` with the histories of its rows, `found` in any order, in schema order."""
    found = take_rows(found, np.argsort(found.sparse[0].keys))
    read, made = iter(chunk.sparse), iter(found.sparse[1:])
    sparse = [next(read if feature.history is None else made) for feature in schema.sparse]
    return replace(chunk, sparse=sparse)
