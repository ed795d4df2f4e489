"""What a report needs of the files of a dataset: a look at its rows, and the head of each vocabulary."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lanner import storage
from lanner.errors import DataError
from lanner.manifest import FileEntry
from lanner.prep.report.profile import SplitProfile
from lanner.prep.split import SPLITS
from lanner.prep.writer import BATCH_ROWS
from lanner.schema import Schema

LOOKED_AT, LOOKED_AT_REMOTELY = 16 * BATCH_ROWS, 4 * BATCH_ROWS
"""About as many rows of a split are read, all of them where it has fewer: the report of any dataset takes seconds."""
TOP = 10


@dataclass(frozen=True)
class Known:
    """Of a vocabulary: how many values it has, and the most frequent ones as (text, id, count)."""

    values: int
    top: list[tuple[str, int, int]]


def profiles(
    directory: str | os.PathLike[str], schema: Schema, files: Mapping[str, FileEntry]
) -> dict[str, SplitProfile]:
    """The profile of each split that has files. Raises DataError naming a file that cannot be read.

    Batches are looked at in equal distances, but the labels of local files are all read: they are small.
    """
    found = {}
    local = storage.is_local(directory)
    for split in SPLITS:
        parts = {name: entry.rows or 0 for name, entry in sorted(files.items()) if name.startswith(f"{split}/")}
        rows = sum(parts.values())
        if not rows:
            continue
        found[split] = SplitProfile(schema, rows)
        step = max(-(-rows // (LOOKED_AT if local else LOOKED_AT_REMOTELY)), 1)
        number = 0
        for name in parts:
            uri = storage.join(directory, name)
            try:
                with ExitStack() as opened:
                    for read in _batches(uri, opened):
                        chosen, number = number % step == 0, number + 1
                        if chosen or local:
                            found[split].add(read(), columns=chosen)
            except (pa.ArrowException, KeyError) as error:
                raise DataError(f"{uri}: {error}") from error
    return found


def _batches(uri: str, opened: ExitStack) -> Iterator[Callable[[], pa.RecordBatch]]:
    """What reads each record batch of a part file; only those that are called for are read, of Arrow files."""
    if uri.endswith(".parquet"):
        file = opened.enter_context(storage.open_file(uri))
        for batch in pq.ParquetFile(file).iter_batches(BATCH_ROWS):
            yield partial(_given, batch)
        return
    if storage.is_local(uri):
        source = opened.enter_context(pa.memory_map(str(storage.local_path(uri))))
    else:
        source = opened.enter_context(storage.open_file(uri))
    reader = pa.ipc.open_file(source)
    for number in range(reader.num_record_batches):
        yield partial(reader.get_batch, number)


def _given(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def vocabularies(directory: str | os.PathLike[str], schema: Schema) -> dict[str, Known]:
    """What is known of each table with a vocabulary, by table, read piece by piece."""
    found = {}
    for table in schema.tables:
        if table.vocabulary:
            found[table.name] = _head(storage.join(directory, table.vocabulary))
    return found


def _head(uri: str) -> Known:
    counted, top = 0, pa.table({"value": [], "id": [], "count": []})
    with storage.open_file(uri) as file:
        for batch in pq.ParquetFile(file).iter_batches(columns=["value", "id", "count"]):
            counts = batch.column("count").to_numpy()
            best = np.sort(np.argsort(-counts, kind="stable")[:TOP])
            more = pa.table(batch.take(pa.array(best)))
            top = more if not counted else pa.concat_tables([top, more])
            counted += batch.num_rows
    top = top.sort_by([("count", "descending"), ("id", "ascending")])[:TOP]
    return Known(counted, [(str(row["value"]), row["id"], row["count"]) for row in top.to_pylist()])
