"""Encoded rows to Arrow part files, published one by one."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from types import TracebackType
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa

from lanner import storage
from lanner.errors import DataError
from lanner.manifest import FileEntry
from lanner.prep.encoder import Encoded, IdColumn
from lanner.schema import Schema

DenseType = Literal["float32", "float16"]
PART_ROWS = 1 << 22
"""Rows of a part file (a multiple of BATCH_ROWS)."""
BATCH_ROWS = 1 << 14
"""Rows of a record batch: small enough that one is encoded within a core's cache."""


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


class PartWriter:
    """Writes the record batches of one split as `out/split/part-*.arrow`; a context manager.

    `entries` are the finished parts by path relative to `out`. A part appears under its name when it is complete.
    """

    def __init__(self, out: str, split: str) -> None:
        self._out, self._split = out, split
        self.entries: dict[str, FileEntry] = {}
        self._open = ExitStack()
        self._stream: Any = None
        self._sink: _Measured | None = None
        self._rows = 0

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        self._open.__exit__(kind, error, trace)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch of at most BATCH_ROWS rows."""
        if self._stream is None:
            file = self._open.enter_context(storage.publish(storage.join(self._out, self._name())))
            self._sink = _Measured(file)
            self._stream = pa.ipc.new_file(pa.PythonFile(self._sink, "w"), batch.schema)
        self._stream.write_batch(batch)
        self._rows += batch.num_rows
        if self._rows >= PART_ROWS:
            self._finish()

    def _name(self) -> str:
        return f"{self._split}/part-{len(self.entries):05d}.arrow"

    def _finish(self) -> None:
        if self._stream is None or self._sink is None:
            return
        self._stream.close()
        self._open.close()
        self.entries[self._name()] = self._sink.entry(self._rows)
        self._stream, self._sink, self._rows = None, None, 0


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
