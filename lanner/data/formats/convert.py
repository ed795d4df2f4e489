"""`convert`: the rows of one format into another, block after block, whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lanner import storage
from lanner.data.formats import checks
from lanner.data.formats.base import Sink, Source, Target, text_of
from lanner.data.formats.measure import measure
from lanner.data.formats.registry import CARRIED, format_of, open_source
from lanner.data.formats.schemas import without_vocabularies
from lanner.errors import ConfigError, DataError
from lanner.progress import progress
from lanner.schema import Schema

Location = str | os.PathLike[str]


@dataclass(slots=True)
class Conversion:
    """What was done: rows by split, and how many records were left out because they are `damaged` (the first ones)."""

    out: str
    read_as: str
    written_as: str
    rows: dict[str, int]
    skipped: int = 0
    damaged: list[str] = field(default_factory=list)
    seconds: float = 0.0


def convert(
    source: Location,
    out: Location,
    to: str,
    from_: str | None = None,
    schema: Schema | Location | None = None,
    *,
    read: Mapping[str, Any] | None = None,
    write: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Conversion:
    """Convert `source` to the folder `out` in the format `to`; both on any file system.

    Args:
        source: folder or file; see `open_source` for `from_` (its format) and `schema`.
        read, write: options of the two formats.
        overwrite: replace what `out` holds.

    Memory stays bounded: at most some blocks of rows are held. Schema and vocabularies are carried along. Tables whose
    size nothing tells are measured first, which reads the rows twice. Raises ConfigError or SchemaError before rows
    are read where the target cannot hold the source, DataError or IdRangeError naming file, row and column for rows
    that break their format or schema; nothing is left in `out` then.
    """
    start = time.perf_counter()
    target_format, place = format_of(to), text_of(out)
    writing = target_format.parse(write or {})
    opened = open_source(source, from_, schema, read)
    if f"{opened.uri}/".startswith(f"{place}/"):
        raise ConfigError(f"{place} holds what is read; choose another place")
    if storage.exists(place) and not overwrite and not _empty(place):
        raise ConfigError(f"{place} exists; choose another place or overwrite it")
    held, vocabularies = _schema(opened, quiet)
    rows: dict[str, int] = {}
    with whole_folder(place) as folder:
        for name in vocabularies:
            _copy(storage.join(opened.uri, name), storage.join(folder, name))
        held.save(storage.join(folder, "schema.yaml"))
        sink = target_format.create(Target(folder, place, held, opened.rows), writing)
        with sink:
            for split in opened.rows:
                rows[split] = _write(opened, split, held, sink, quiet)
            if not sum(rows.values()):
                raise DataError(f"{opened.uri}: no rows")
        if to != "lanner":
            carried = {"format": to, "options": sink.reading, "rows": rows}
            storage.write_text(storage.join(folder, CARRIED), json.dumps(carried, indent=2) + "\n")
    seconds = round(time.perf_counter() - start, 3)
    return Conversion(place, opened.format, to, rows, opened.skipped, list(opened.damaged), seconds)


def _schema(source: Source, quiet: bool) -> tuple[Schema, list[str]]:
    """The schema with every table's size, and the vocabulary files that can be carried along."""
    schema = source.schema
    files = [table.vocabulary for table in schema.tables if table.vocabulary]
    if any(not storage.exists(storage.join(source.uri, name)) for name in files):
        schema, files = without_vocabularies(schema), []
    return measure(source, schema, quiet), files


def _write(source: Source, split: str, schema: Schema, sink: Sink, quiet: bool) -> int:
    rows = 0
    with progress(f"converting {split}", source.rows[split], quiet) as bar:
        for block in source.blocks(split):
            checks.check(block, schema)
            sink.write(split, block)
            rows += block.rows
            bar.advance(block.rows)
    return rows


def _copy(source: str, target: str) -> None:
    with storage.open_file(source) as read, storage.publish(target) as written:
        shutil.copyfileobj(read, written, 1 << 20)


def _empty(place: str) -> bool:
    return storage.is_directory(place) and not storage.list_files(place)


@contextmanager
def whole_folder(place: str) -> Iterator[str]:
    """A folder to write in that becomes `place` when the block ends, replacing what was there.

    Locally it is another folder beside, renamed at the end. On other file systems it is `place` itself, emptied
    first and again after an error: there a killed run leaves files, but not the ones that are written last.
    """
    if not storage.is_local(place):
        storage.remove(place)
        try:
            yield place
        except BaseException:
            storage.remove(place)
            raise
        return
    target = storage.local_path(place).absolute()
    building, old = (target.with_name(f".{target.name}.{suffix}") for suffix in ("building", "old"))
    with storage.locked(target.with_name(f".{target.name}.lock"), place):
        shutil.rmtree(building, ignore_errors=True)  # of a killed run
        try:
            building.mkdir(parents=True)
            yield str(building)
            shutil.rmtree(old, ignore_errors=True)
            if target.exists():
                target.rename(old)
            building.rename(target)
        finally:
            shutil.rmtree(building, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
