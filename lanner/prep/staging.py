"""Pass 1: every input file to a staged one; files staged by an earlier run are taken over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from lanner import storage
from lanner.errors import DataError
from lanner.prep import scratch
from lanner.prep.chunk import RawChunk
from lanner.prep.plan import Plan
from lanner.prep.rejects import StrictRows, TolerantRows
from lanner.prep.rows import take_rows
from lanner.prep.sources import BadRow, Source, open_source
from lanner.prep.stage import REJECTS, StagedFile, StageWriter
from lanner.progress import Bar, progress

_HEAD_BYTES = 64 << 10
_HEAD_ROWS = 1000
_MOST_HELD = 100_000


def stage_files(plan: Plan, folder: Path, quiet: bool) -> list[StagedFile]:
    """Stage the files of the plan, in order, until its number of rows is reached.

    Raises DataError naming the file and lines at fault; files staged before that stay for the next run.
    """
    keys = [plan.stage_key(file) for file in plan.files]
    scratch.forget_others(folder, keys)
    ready = {key: found for key in keys if (found := usable(folder / key, plan.strict))}
    source = open_source(plan.source)
    for file, key in zip(plan.files, keys, strict=True):
        if key not in ready:
            check_head(source, file, plan)
    staged: list[StagedFile] = []
    left = plan.rows
    sizes = [storage.size(file) for file in plan.files]
    with progress("reading", sum(sizes), quiet) as bar:
        for file, key, size in zip(plan.files, keys, sizes, strict=True):
            if left == 0:
                break
            found = ready.get(key) or stage_file(source, file, folder / key, plan, left, bar)
            staged.append(found)
            left = None if left is None else left - found.rows
            bar.advance(size)
    return staged


def usable(folder: Path, strict: bool) -> StagedFile | None:
    """What an earlier run staged there, unless it dropped rows that this strict run has to report."""
    found = StagedFile.load(folder)
    return None if found and strict and found.rejected else found


def check_head(source: Source, file: str, plan: Plan) -> None:
    """Refuse a file none of whose first rows is good: it is not what was said, and nothing has been done yet."""
    bad: list[BadRow] = []

    def collect(row: BadRow) -> None:
        bad.append(row)
        if len(bad) == _MOST_HELD:
            raise _no_good_row(file, bad)

    options = replace(plan.options, block_bytes=min(_HEAD_BYTES, plan.options.block_bytes))
    chunks = source.read(file, plan.read_schema, options, collect)
    try:
        for chunk in chunks:
            if chunk.rows:
                return
            if len(bad) >= _HEAD_ROWS:
                break
    finally:
        _close(chunks)
    if bad:
        raise _no_good_row(file, bad)


def _no_good_row(file: str, bad: list[BadRow]) -> DataError:
    first = bad[0]
    return DataError(f"{file}: line {first.line}: {first.message}; none of the first {len(bad)} rows is good")


def stage_file(source: Source, file: str, folder: Path, plan: Plan, limit: int | None, bar: Bar) -> StagedFile:
    """Read `file` to its end, or `limit` good rows of it, into `folder`.

    Raises DataError naming the lines at fault when the run is strict.
    """
    with StageWriter(folder, file) as writer, TolerantRows(file, folder / REJECTS) as tolerant:
        strict = StrictRows(file)
        chunks = source.read(file, plan.read_schema, plan.options, strict if plan.strict else tolerant)
        try:
            for chunk in chunks:
                writer.add(chunk if limit is None else take_rows(chunk, slice(0, min(chunk.rows, limit))))
                bar.advance(0, f"{file.rpartition('/')[2]}: {writer.staged.rows:,} rows")
                if limit is not None and (limit := limit - chunk.rows) <= 0:
                    break
        finally:
            _close(chunks)
        strict.stop()
        return writer.finish(dict(tolerant.counts))


def _close(chunks: Iterator[RawChunk]) -> None:
    """End a generator's threads and open files now rather than when it is collected."""
    if close := getattr(chunks, "close", None):
        close()
