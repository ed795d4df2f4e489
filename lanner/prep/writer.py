"""Encoded rows to Arrow part files, published one by one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa

from lanner import storage
from lanner.errors import DataError
from lanner.manifest import FileEntry
from lanner.prep.encoder import Encoded, IdColumn
from lanner.schema import Schema

DenseType = Literal["float32", "float16"]
PART_ROWS = 1 << 20
"""Rows of a part file (a multiple of BATCH_ROWS)."""
BATCH_ROWS = 1 << 15
"""Rows of a record batch: few enough that a column is encoded within a core's cache, many for the cost of a batch."""


class _Measured:
    """Counts and digests what is written to `file`, so that parts need not be read again for the manifest."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.blake2b(digest_size=16)
        self.size = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._digest.update(view)
        self._file.write(view)
        self.size += view.nbytes
        return view.nbytes

    def flush(self) -> None:
        pass

    def entry(self, rows: int) -> FileEntry:
        return FileEntry(size=self.size, checksum=self._digest.hexdigest(), rows=rows)


class _Part:
    """One open part file."""

    def __init__(self, uri: str, schema: pa.Schema) -> None:
        self._open = ExitStack()
        self._sink = _Measured(self._open.enter_context(storage.publish(uri)))
        self._stream = pa.ipc.new_file(pa.PythonFile(self._sink, "w"), schema)
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._stream.write_batch(batch)
        self.rows += batch.num_rows

    def publish(self) -> FileEntry:
        """Close the file, which then appears under its name."""
        with self._open:
            self._stream.close()
        return self._sink.entry(self.rows)

    def drop(self, error: BaseException) -> None:
        """Leave no file behind."""
        self._open.__exit__(type(error), error, error.__traceback__)


class PartWriter:
    """Writes the record batches of one split as `out/split/part-*.arrow`; a context manager.

    A part appears under its name when it is whole; that waits for the disk and is done on the thread of `publisher`,
    beside the writing of the next part or split.
    """

    def __init__(self, out: str, split: str, publisher: ThreadPoolExecutor) -> None:
        self.split = split
        self._out, self._publisher = out, publisher
        self._part: _Part | None = None
        self._published: list[tuple[str, Future[FileEntry]]] = []

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self._part is not None:
            self._part.drop(error)
        elif self._part is not None:
            self._publish(self._part)

    def entries(self) -> dict[str, FileEntry]:
        """The parts by path relative to `out`, once all are published; to be asked after the block."""
        return {name: published.result() for name, published in self._published}

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch of at most BATCH_ROWS rows."""
        if self._part is None:
            self._part = _Part(storage.join(self._out, self._name()), batch.schema)
        self._part.write(batch)
        if self._part.rows >= PART_ROWS:
            self._publish(self._part)

    def _name(self) -> str:
        return part_name(self.split, len(self._published))

    def _publish(self, part: _Part) -> None:
        if self._published:
            self._published[-1][1].result()  # an error there ends the run now; and only one part waits for the disk
        self._published.append((self._name(), self._publisher.submit(part.publish)))
        self._part = None


def write_part(out: str, name: str, batches: Iterable[pa.RecordBatch]) -> FileEntry:
    """Publish the part `name` of `out` with the given batches, at least one and PART_ROWS rows at most."""
    part: _Part | None = None
    try:
        for batch in batches:
            part = part or _Part(storage.join(out, name), batch.schema)
            part.write(batch)
    except BaseException as error:
        if part is not None:
            part.drop(error)
        raise
    assert part is not None
    return part.publish()


def part_name(split: str, number: int) -> str:
    """Where a dataset has part `number` of a split."""
    return f"{split}/part-{number:05d}.arrow"


def record_batch(encoded: Encoded, schema: Schema, dense_type: DenseType) -> pa.RecordBatch:
    """The columns of a dataset file; see `docs` for the layout. Raises DataError where float16 is too small."""
    columns: dict[str, pa.Array] = {}
    for index, label in enumerate(schema.labels):
        binary = label.task == "binary" and not label.soft
        columns[label.name] = pa.array(encoded.labels[:, index].astype(np.uint8 if binary else np.float32))
    if schema.dense:
        flat = pa.array(_cast(encoded.dense, schema, dense_type).reshape(-1))
        columns["dense"] = pa.FixedSizeListArray.from_arrays(flat, len(schema.dense))
    for feature, column in zip(schema.sparse, encoded.ids, strict=True):
        columns[feature.name] = _id_array(column)
    for name, values in ((schema.weight, encoded.weight), (schema.group, encoded.group)):
        if name and values is not None:
            columns[name] = pa.array(values)
    return pa.record_batch(columns)


def _cast(dense: np.ndarray, schema: Schema, dense_type: DenseType) -> np.ndarray:
    if dense_type == "float32":
        return np.ascontiguousarray(dense, np.float32)
    with np.errstate(over="ignore"):
        half = dense.astype(np.float16)
    if not np.isfinite(half).all():
        row, column = (int(at) for at in np.argwhere(~np.isfinite(half))[0])
        raise DataError(
            f"dense column {schema.dense[column].name!r}: {dense[row, column]:g} does not fit float16; "
            "use float32 or a transform that makes it smaller"
        )
    return half


def _id_array(column: IdColumn) -> pa.Array:
    values = pa.array(column.values)
    if column.offsets is None:
        return values
    return pa.ListArray.from_arrays(pa.array(column.offsets.astype(np.int32)), values)
