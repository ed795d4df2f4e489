"""Parquet and Arrow IPC files on any file system: opened, measured, read and written some rows at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from lanner import storage
from lanner.data.formats.base import BLOCK_ROWS
from lanner.errors import DataError

Kind = Literal["parquet", "arrow"]
ENDINGS: dict[Kind, tuple[str, ...]] = {"parquet": (".parquet", ".parq"), "arrow": (".arrow", ".feather", ".ipc")}
GROUP_BLOCKS = 4  # blocks of a row group
PART_ROWS = 1 << 20
_BUFFER = 1 << 20  # bytes read at a time of a column of a row group, however large it is


@contextmanager
def _named(uri: str, kind: Kind) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{uri}: damaged {kind.capitalize()} file: {error}") from error
    except OSError as error:
        if error.filename is not None or isinstance(error, FileNotFoundError):
            raise
        raise DataError(f"{uri}: damaged {kind.capitalize()} file: {error}") from error


def shape(uri: str, kind: Kind) -> tuple[pa.Schema, int | None]:
    """Columns of a file, and its rows where that takes no reading; raises DataError naming it where it is damaged."""
    with _named(uri, kind), storage.open_file(uri) as file:
        if kind == "parquet":
            source = pq.ParquetFile(file)
            return source.schema_arrow, source.metadata.num_rows
        reader = pa.ipc.open_file(file)
        return reader.schema, None


def batches(uri: str, kind: Kind, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a file, at most BLOCK_ROWS at a time; raises DataError naming it where it is damaged."""
    with _named(uri, kind), storage.open_file(uri) as file:
        if kind == "parquet":
            source = pq.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True)
            yield from source.iter_batches(batch_size=BLOCK_ROWS, columns=list(columns))
            return
        reader = pa.ipc.open_file(file)
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            batch.validate(full=True)
            for start in range(0, batch.num_rows, BLOCK_ROWS):
                yield batch.slice(start, BLOCK_ROWS)


class Writer(ABC):
    """Writes the record batches of one file, which appears whole when it is closed."""

    def __init__(self, uri: str) -> None:
        self.rows = 0
        self._open = ExitStack()
        self._file = self._open.enter_context(storage.publish(uri))

    @abstractmethod
    def _append(self, batch: pa.RecordBatch) -> None: ...

    @abstractmethod
    def _finish(self) -> None: ...

    def write(self, batch: pa.RecordBatch) -> None:
        self._append(batch)
        self.rows += batch.num_rows

    def close(self) -> None:
        with self._open:
            self._finish()

    def drop(self) -> None:
        """Leave no file behind."""
        self._open.__exit__(RuntimeError, RuntimeError("given up"), None)


class ParquetWriter(Writer):
    _waiting: list[pa.RecordBatch]
    _writer: Any = None

    def _append(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer, self._waiting = pq.ParquetWriter(self._file, batch.schema, write_page_checksum=True), []
        self._waiting.append(batch)
        if len(self._waiting) == GROUP_BLOCKS:
            self._group()

    def _group(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
            self._waiting = []

    def _finish(self) -> None:
        self._group()
        self._writer.close()


class ArrowWriter(Writer):
    _writer: Any = None

    def _append(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_file(pa.PythonFile(self._file, "w"), batch.schema)
        self._writer.write_batch(batch)

    def _finish(self) -> None:
        self._writer.close()


WRITERS: dict[Kind, type[Writer]] = {"parquet": ParquetWriter, "arrow": ArrowWriter}


class PartWriter:
    """The parts `folder/part-*` of a split, of about `rows` rows each."""

    def __init__(self, folder: str, kind: Kind, rows: int = PART_ROWS) -> None:
        self._folder, self._kind, self._rows = folder, kind, rows
        self._writer: Writer | None = None
        self.parts: dict[str, int] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            name = f"part-{len(self.parts):05d}{ENDINGS[self._kind][0]}"
            self._writer = WRITERS[self._kind](storage.join(self._folder, name))
            self.parts[name] = 0
        self._writer.write(batch)
        self.parts[next(reversed(self.parts))] = self._writer.rows
        if self._writer.rows >= self._rows:
            self.close()

    def close(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    def drop(self) -> None:
        if self._writer is not None:
            self._writer.drop()
