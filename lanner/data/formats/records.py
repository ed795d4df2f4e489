"""Headerless files of records of four-byte words: labels, numbers, then the ids of each feature."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any, Literal

import numpy as np

from lanner import storage
from lanner.data.formats import fixed
from lanner.data.formats.base import Array, Block, Ids, Sink, Source, Target
from lanner.data.formats.checks import exactly
from lanner.data.formats.fixed import FixedRows
from lanner.data.formats.rows import counts, numbers, plain_columns, widths
from lanner.data.formats.schemas import fixed_rows, table_rows
from lanner.errors import ConfigError, DataError
from lanner.prep.transforms import Transforms
from lanner.schema import Schema

FILES = {"train": "train_data.bin", "valid": "val_data.bin", "test": "test_data.bin"}
"""What MLPerf and Facebook call the files of the splits."""

Word = Literal["<f4", "<i4", "<u4", "<i8"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Types of the words. `offsets`: ids carry the offset of their slot, the sum of the tables before it."""

    label: Word
    dense: Word
    ids: Word
    offsets: bool = False

    def record(self, schema: Schema, wanted: str) -> np.dtype[Any]:
        """One row; raises ConfigError where a feature has no fixed hotness."""
        fields = [
            ("labels", self.label, (len(schema.labels),)),
            ("dense", self.dense, (len(schema.dense),)),
            ("ids", self.ids, (sum(widths(schema, wanted)),)),
        ]
        return np.dtype(fields)

    def starts(self, schema: Schema, wanted: str) -> list[int]:
        """What is added to the ids of each feature; raises ConfigError where sizes are not known or too large."""
        rows = table_rows(schema)
        if not self.offsets:
            top = max((count for count in rows if count), default=0)
            starts = [0] * len(rows)
        else:
            for feature, count in zip(schema.sparse, rows, strict=True):
                if count is None:
                    raise ConfigError(f"{wanted}: offsets of slots need the size of table {feature.table_name!r}")
            ends = np.cumsum([0, *(count or 0 for count in rows)])
            top, starts = int(ends[-1]), ends[:-1].tolist()
        if top - 1 > np.iinfo(np.dtype(self.ids)).max:
            raise ConfigError(f"{wanted}: ids up to {top - 1} do not fit its keys of 32 bits")
        return starts


class RecordSource(Source):
    """`uri` is a file (one split, train) or a folder with FILES."""

    def __init__(self, uri: str, schema: Schema, layout: Layout, modulo: int | None = None) -> None:
        self._record, self._starts = layout.record(schema, uri), layout.starts(schema, uri)
        self._modulo = modulo
        if storage.is_directory(uri):
            paths = {split: storage.join(uri, name) for split, name in FILES.items()}
            paths = {split: path for split, path in paths.items() if storage.exists(path)}
            if not paths:
                raise DataError(f"{uri}: none of {', '.join(FILES.values())} is there; name the file itself")
        else:
            paths = {"train": uri}
        self._files = {split: FixedRows.whole(path, self._record, 1) for split, path in paths.items()}
        super().__init__(uri, schema, {split: file.rows for split, file in self._files.items()})

    def blocks(self, split: str) -> Iterator[Block]:
        file = self._files[split]
        for first, (records,) in fixed.blocks([file]):
            rows = records[:, 0]
            ids = tuple(self._ids(rows["ids"]))
            yield Block(file.uri, first, rows["labels"], np.ascontiguousarray(rows["dense"]), ids)

    def _ids(self, words: Array) -> Iterator[Ids]:
        at = 0
        for width, start in zip(widths(self.schema, self.uri), self._starts, strict=True):
            values = words[:, at : at + width].astype(np.int64).reshape(-1) - start
            if self._modulo:
                values %= self._modulo
            ends = None if width == 1 else np.arange(len(words) + 1, dtype=np.int64) * width
            yield Ids(values, ends)
            at += width

    def details(self) -> dict[str, Any]:
        return {"record_bytes": self._record.itemsize}


class RecordSink(Sink):
    """Writes FILES."""

    def __init__(self, target: Target, layout: Layout, wanted: str, reading: Mapping[str, Any]) -> None:
        super().__init__(target, reading)
        plain_columns(target.schema, wanted)
        fixed_rows(target.schema, wanted)
        self._layout = layout
        self._record, self._starts = layout.record(target.schema, wanted), layout.starts(target.schema, wanted)
        self._transforms = Transforms(target.schema.dense)
        self._open = ExitStack()
        self._files: dict[str, IO[bytes]] = {}

    def write(self, split: str, block: Block) -> None:
        rows = np.empty(block.rows, self._record)
        for at, label in enumerate(self.schema.labels):
            rows["labels"][:, at] = exactly(block.labels[:, at], self._layout.label, block, label.name)
        whole = np.dtype(self._layout.dense).kind != "f"
        dense = counts(block, self.schema, self._transforms) if whole else numbers(block, self._transforms)
        for at, number in enumerate(self.schema.dense):
            rows["dense"][:, at] = exactly(dense[:, at], self._layout.dense, block, number.name)
        at = 0
        for ids, start in zip(block.ids, self._starts, strict=True):
            matrix = ids.values.reshape(block.rows, -1)
            rows["ids"][:, at : at + matrix.shape[1]] = matrix.astype(np.int64) + start
            at += matrix.shape[1]
        self._file(split).write(rows.tobytes())

    def _file(self, split: str) -> IO[bytes]:
        if split not in self._files:
            publishing = storage.publish(storage.join(self.target.folder, FILES[split]))
            self._files[split] = self._open.enter_context(publishing)
        return self._files[split]

    def close(self) -> None:
        self._open.close()

    def drop(self) -> None:
        self._open.__exit__(RuntimeError, RuntimeError("given up"), None)
