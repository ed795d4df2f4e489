"""Staged rows: each input file once more, typed, in a scratch folder, so that text is parsed a single time.

A staged file is a sequence of Arrow IPC streams of one record batch, one a chunk, each beginning on a page, so that
a chunk is mapped alone and only the columns in use are ever read. `done.json`, written last, holds the index.
"""

from __future__ import annotations

import json
import mmap
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from lanner.kernels.numeric import narrowed
from lanner.prep.chunk import Keys, RawChunk
from lanner.prep.rows import join_chunks

DONE, ROWS, REJECTS = "done.json", "rows.arrow", "rejects.tsv"
_LEAST_ROWS = 1 << 13
"""Rows of a staged chunk (but the last): reading one costs as much as reading some hundred rows."""


@dataclass
class StagedFile:
    """One finished staged file: `chunks` are (offset, bytes, rows); `rejected` counts bad rows by reason.

    `unmatched` counts keys that side tables do not have.
    """

    folder: Path
    file: str
    rows: int = 0
    chunks: list[tuple[int, int, int]] = field(default_factory=list)
    rejected: dict[str, int] = field(default_factory=dict)
    reused: bool = False
    unmatched: int = 0

    def read(self, chunk: int) -> RawChunk:
        """Chunk number `chunk`, mapped."""
        offset, size, _ = self.chunks[chunk]
        with (self.folder / ROWS).open("rb") as source:
            return read_chunk(mmap.mmap(source.fileno(), size, access=mmap.ACCESS_READ, offset=offset))

    def save(self) -> None:
        """Declare the file staged."""
        values = {key: value for key, value in asdict(self).items() if key not in ("folder", "reused")}
        partial = self.folder / f"{DONE}.part"
        partial.write_text(json.dumps(values))
        partial.replace(self.folder / DONE)

    @classmethod
    def load(cls, folder: Path) -> StagedFile | None:
        """The staged file in `folder`; None when there is none or it was not finished."""
        try:
            values = json.loads((folder / DONE).read_text())
            end = max((offset + size for offset, size, _ in values["chunks"]), default=0)
            if end and (folder / ROWS).stat().st_size < end:
                return None
            return cls(folder, reused=True, **values)
        except (OSError, ValueError, TypeError, KeyError):
            return None


class StageWriter:
    """Writes the chunks of one input file; a context manager that cleans up after an error."""

    def __init__(self, folder: Path, file: str, least_rows: int = _LEAST_ROWS) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.staged = StagedFile(folder, file)
        self._sink = pa.OSFile(str(folder / ROWS), "wb")
        self._held: list[RawChunk] = []
        self._least_rows = least_rows

    def __enter__(self) -> StageWriter:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._sink.close()
        if kind is not None:
            shutil.rmtree(self.staged.folder, ignore_errors=True)

    def add(self, chunk: RawChunk) -> None:
        """Append a chunk; small ones are put together, empty ones are left out."""
        if not chunk.rows:
            return
        self.staged.rows += chunk.rows
        if chunk.unmatched is not None:
            self.staged.unmatched += int(chunk.unmatched.sum())
        self._held.append(chunk)
        if sum(held.rows for held in self._held) >= self._least_rows:
            self._write()

    def _write(self) -> None:
        if not self._held:
            return
        chunk = join_chunks(self._held)
        self._held = []
        offset = self._sink.tell()
        write_chunk(self._sink, chunk)
        end = self._sink.tell()
        self._sink.write(bytes(-end % mmap.ALLOCATIONGRANULARITY))
        self.staged.chunks.append((offset, end - offset, chunk.rows))

    def finish(self, rejected: dict[str, int]) -> StagedFile:
        """Close the file and declare it staged."""
        self._write()
        self._sink.close()
        self.staged.rejected = rejected
        self.staged.save()
        return self.staged


def write_chunk(sink: IO[bytes] | pa.NativeFile, chunk: RawChunk) -> None:
    """Write `chunk` as an Arrow stream of one record batch.

    Dense values go as float32 where that loses nothing: most logged numbers are small integers.
    """
    columns: dict[str, pa.Array] = {}
    for name, matrix in (("labels", chunk.labels), ("dense", narrowed(np.ascontiguousarray(chunk.dense)))):
        if matrix.shape[1]:
            flat = pa.array(np.ascontiguousarray(matrix).reshape(-1))
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1])
    for index, keys in enumerate(chunk.sparse):
        columns[f"keys.{index}"] = _column(pa.array(np.ascontiguousarray(keys.keys)), keys)
        if keys.texts is not None:
            columns[f"texts.{index}"] = keys.texts if keys.offsets is None else _bags(keys.texts, keys.offsets)
    for name in ("weight", "group", "time"):
        if (values := getattr(chunk, name)) is not None:
            columns[name] = pa.array(values)
    batch = pa.record_batch(columns)
    notes = {"rows": str(chunk.rows), "sparse": str(len(chunk.sparse))}
    with pa.ipc.new_stream(sink, batch.schema.with_metadata(notes)) as stream:
        stream.write_batch(batch)


def read_chunk(buffer: Any) -> RawChunk:
    """Read back what `write_chunk` wrote into `buffer` (anything with the buffer protocol), without copies."""
    stream = pa.ipc.open_stream(pa.py_buffer(buffer))
    rows, count = (int(stream.schema.metadata[name]) for name in (b"rows", b"sparse"))
    batch = stream.read_next_batch()
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return RawChunk(
        rows=rows,
        labels=_matrix(columns.get("labels"), rows, np.float32),
        dense=_matrix(columns.get("dense"), rows, np.float64),
        sparse=[_keys(columns[f"keys.{k}"], columns.get(f"texts.{k}")) for k in range(count)],
        **{name: _numbers(columns[name]) for name in ("weight", "group", "time") if name in columns},
    )


def _column(values: pa.Array, keys: Keys) -> pa.Array:
    if keys.offsets is not None:
        return _bags(values, keys.offsets)
    if keys.missing is None:
        return values
    present = pa.py_buffer(np.packbits(~keys.missing, bitorder="little"))
    return pa.Array.from_buffers(values.type, len(values), [present, values.buffers()[1]])


def _bags(values: pa.Array, offsets: np.ndarray) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(offsets.astype(np.int64, copy=False)), values)


def _numbers(array: pa.Array) -> np.ndarray:
    """The values of a numeric array, nulls included, without a copy."""
    kind = array.type.to_pandas_dtype()
    data = np.frombuffer(array.buffers()[1] or b"", kind)
    return data[array.offset : array.offset + len(array)]


def _matrix(array: pa.Array | None, rows: int, kind: Any) -> np.ndarray:
    if array is None:
        return np.empty((rows, 0), kind)
    return _numbers(array.flatten()).reshape(rows, -1)


def _keys(array: pa.Array, texts: pa.Array | None) -> Keys:
    if pa.types.is_large_list(array.type):
        flat = None if texts is None else texts.flatten()
        return Keys(_numbers(array.flatten()), offsets=array.offsets.to_numpy(), texts=flat)
    missing = None
    if array.null_count:
        bits = np.frombuffer(array.buffers()[0], np.uint8)
        missing = np.unpackbits(bits, count=len(array), bitorder="little").view(np.bool_)
        missing = np.logical_not(missing, out=missing)
    return Keys(_numbers(array), missing, texts=texts)
