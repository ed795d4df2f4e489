"""Lanner's own datasets as a format among others."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Literal

from lanner import manifest as manifests
from lanner import storage
from lanner.data.dataset import Dataset
from lanner.data.formats.base import BLOCK_ROWS, SPLITS, Block, Format, Options, Sink, Source, Target
from lanner.data.formats.rows import encoded, from_batch, one_a_row
from lanner.manifest import FileEntry, Manifest
from lanner.prep.transforms import Transforms
from lanner.prep.writer import PartWriter, record_batch
from lanner.schema import Schema


class DatasetOptions(Options):
    """`dense_type`: how the numbers are stored."""

    dense_type: Literal["float32", "float16"] = "float32"


class DatasetSource(Source):
    """Reads through `Split`, which checks ids and structure."""

    def __init__(self, uri: str) -> None:
        self._dataset = Dataset.open(uri)
        splits = {name: self._dataset.split(name) for name in SPLITS}
        self._splits = {name: split for name, split in splits.items() if split is not None}
        super().__init__(uri, self._dataset.schema, {name: len(split) for name, split in self._splits.items()})

    def blocks(self, split: str) -> Iterator[Block]:
        rows = self._splits[split]
        for start in range(0, len(rows), BLOCK_ROWS):
            batch = rows.slice(start, min(start + BLOCK_ROWS, len(rows)))
            yield one_a_row(from_batch(batch, rows.name, start), self.schema)

    def details(self) -> dict[str, Any]:
        files = self._dataset.manifest.files
        return {"files": len(files), "bytes": sum(entry.size for entry in files.values())}


class DatasetSink(Sink):
    """Writes parts as prep does, then the manifest."""

    def __init__(self, target: Target, options: DatasetOptions) -> None:
        super().__init__(target)
        self._options = options
        self._transforms = Transforms(target.schema.dense)
        self._open = ExitStack()
        self._publisher = self._open.enter_context(ThreadPoolExecutor(1, "lanner-publish"))
        self._writers: dict[str, PartWriter] = {}

    def write(self, split: str, block: Block) -> None:
        if split not in self._writers:
            writer = PartWriter(self.target.folder, split, self._publisher)
            self._writers[split] = self._open.enter_context(writer)
        rows = encoded(block, self.schema, self._transforms)
        self._writers[split].write(record_batch(rows, self.schema, self._options.dense_type))

    def close(self) -> None:
        self._open.close()
        folder, schema = self.target.folder, self.schema
        entries: dict[str, FileEntry] = {}
        for writer in self._writers.values():
            entries |= writer.entries()
        beside = ["schema.yaml", *(table.vocabulary for table in schema.tables if table.vocabulary)]
        entries |= {name: manifests.entry(folder, name) for name in beside}
        info = {"source": "convert"}
        manifests.write(folder, Manifest(kind="dataset", fingerprint=schema.fingerprint(), files=entries, info=info))

    def drop(self) -> None:
        error = RuntimeError("given up")
        self._open.__exit__(RuntimeError, error, None)


class DatasetFormat(Format):
    name = "lanner"
    title = "Lanner dataset"
    options = DatasetOptions

    def recognises(self, uri: str) -> bool:
        return storage.exists(storage.join(uri, manifests.NAME))

    def open(self, uri: str, schema: Schema | None, options: Options) -> Source:
        source = DatasetSource(uri)
        if schema is not None:
            source.schema.require_same(schema, uri, "the schema given")
        return source

    def create(self, target: Target, options: Options) -> Sink:
        assert isinstance(options, DatasetOptions)
        return DatasetSink(target, options)
