"""Parquet and Arrow files of anybody: columns of encoded rows, found by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import Field

from lanner import manifest as manifests
from lanner import storage
from lanner.data.formats import arrow_files
from lanner.data.formats.arrow_files import ENDINGS, Kind, PartWriter
from lanner.data.formats.arrow_rows import Plan, is_list, is_numbers, to_arrow, to_block
from lanner.data.formats.base import Block, Format, Names, Options, Sink, Source, Target
from lanner.data.formats.file_lists import FOLDERS
from lanner.data.formats.schemas import derived
from lanner.errors import ConfigError, DataError
from lanner.prep.encoder import id_dtype
from lanner.prep.transforms import Transforms
from lanner.schema import Schema

LABELS = ("label", "click", "target", "y")
"""Names that a derived schema takes for the label: the first that is there."""


class TabularOptions(Options):
    """Where there is no schema: the `labels`, and columns to `ignore`. On writing: about so many `rows` a file."""

    labels: Names = ()
    ignore: Names = ()
    rows: int = Field(default=arrow_files.PART_ROWS, ge=1)


class TabularSource(Source):
    """Files by split; `schema` says which columns are read. The rows of Arrow files are counted as they are read."""

    def __init__(self, uri: str, kind: Kind, files: Mapping[str, list[str]], schema: Schema | None, plan: Plan) -> None:
        self._kind, self._files = kind, dict(files)
        shapes = {file: arrow_files.shape(file, kind) for paths in files.values() for file in paths}
        rows: dict[str, int | None] = {}
        for split, paths in files.items():
            counts = [shapes[file][1] for file in paths]
            rows[split] = None if None in counts else sum(count or 0 for count in counts)
        held = schema or derived_schema(plan, next(iter(shapes.values()))[0])
        super().__init__(uri, held, rows)
        self.any_hotness = schema is None
        wide = {name: width for name, width in plan.dense if width}
        self._plans = {file: Plan.of(held, file, seen.names, wide) for file, (seen, _) in shapes.items()}

    def blocks(self, split: str) -> Iterator[Block]:
        for file in self._files[split]:
            plan, row = self._plans[file], 0
            for batch in arrow_files.batches(file, self._kind, plan.columns):
                if batch.num_rows:
                    yield to_block(batch, plan, file, row)
                row += batch.num_rows

    def details(self) -> dict[str, Any]:
        return {"files": sum(len(paths) for paths in self._files.values())}


def list_widths(files: Mapping[str, list[str]], kind: Kind) -> dict[str, int]:
    """Numbers a row of every list column of floats, as the first row that there is has them."""
    paths = [file for group in files.values() for file in group]
    names = {field.name for field in arrow_files.shape(paths[0], kind)[0] if is_numbers(field.type)}
    if not names:
        return {}
    for file in paths:
        for batch in arrow_files.batches(file, kind, sorted(names)):
            if batch.num_rows:
                first = batch.slice(0, 1)
                return {name: len(first.column(first.schema.get_field_index(name))[0]) for name in names}
    return dict.fromkeys(names, 0)


def derived_schema(plan: Plan, columns: pa.Schema, sizes: Sequence[int] = ()) -> Schema:
    """A schema for the columns of a plan: plain ones have an id a row, lists any number, unless their type says it."""
    features: dict[str, tuple[int | None, int | None]] = {}
    for at, name in enumerate(plan.sparse):
        kind = columns.field(name).type
        fixed = kind.list_size if pa.types.is_fixed_size_list(kind) else None
        features[name] = (sizes[at] if sizes else None, fixed if is_list(kind) else 1)
    return derived(plan.labels, plan.numbers, features)


def derived_plan(uri: str, columns: pa.Schema, wide: Mapping[str, int], options: TabularOptions) -> Plan:
    """Roles by type: floats are numbers, integers and lists of them ids; raises ConfigError for any other column."""
    if absent := [name for name in (*options.labels, *options.ignore) if name not in columns.names]:
        raise ConfigError(f"{uri}: no column {absent[0]!r}; there are {', '.join(columns.names)}")
    labels = options.labels or tuple(name for name in LABELS if name in columns.names)[:1]
    dense: list[tuple[str, int]] = []
    sparse: list[str] = []
    for field in columns:
        kind = field.type
        element = kind.value_type if is_list(kind) or pa.types.is_dictionary(kind) else kind
        if field.name in (*labels, *options.ignore):
            continue
        if pa.types.is_floating(element):
            dense.append((field.name, wide.get(field.name, 0)))
        elif pa.types.is_integer(element):
            sparse.append(field.name)
        else:
            raise ConfigError(
                f"{uri}: column {field.name!r} has type {kind}, neither numbers nor ids; give a schema, or the option "
                f"ignore={field.name}. Raw values are for `lanner prep`"
            )
    return Plan(labels, tuple(dense), tuple(sparse))


class TabularSink(Sink):
    """Writes `<split>/part-*`, with the smallest unsigned types that hold the ids."""

    def __init__(self, target: Target, kind: Kind, rows: int) -> None:
        super().__init__(target)
        self._kind, self._rows = kind, rows
        self._transforms = Transforms(target.schema.dense)
        self._writers: dict[str, PartWriter] = {}

    def write(self, split: str, block: Block) -> None:
        if split not in self._writers:
            self._writers[split] = PartWriter(storage.join(self.target.folder, split), self._kind, self._rows)
        self._writers[split].write(to_arrow(block, self.schema, self._transforms, np.uint8, id_dtype))

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def drop(self) -> None:
        for writer in self._writers.values():
            writer.drop()


class TabularFormat(Format):
    """Files with the endings of one kind: one, those of a folder, or those of its folders train, valid and test."""

    options = TabularOptions

    def __init__(self, kind: Kind) -> None:
        self.name, self.title = kind, f"{kind.capitalize()} files"
        self._kind: Kind = kind

    def recognises(self, uri: str) -> bool:
        if not storage.is_directory(uri):
            return uri.endswith(ENDINGS[self._kind])
        found = self._files(uri)
        folders = {file.rpartition("/")[0] for files in found.values() for file in files} | {uri}
        taken = (manifests.NAME, "_metadata.json")
        return bool(found) and not any(storage.exists(storage.join(f, name)) for f in folders for name in taken)

    def _files(self, uri: str) -> dict[str, list[str]]:
        """By split; empty where there are none."""
        if not storage.is_directory(uri):
            return {"train": [uri]}
        names = [name for name in storage.list_files(uri) if name.endswith(ENDINGS[self._kind])]
        names = [name for name in names if not name.rpartition("/")[2].startswith((".", "_"))]
        by_split = {
            split: [storage.join(uri, name) for name in names if name.partition("/")[0] in folders and "/" in name]
            for split, folders in FOLDERS.items()
        }
        if not any(by_split.values()):
            by_split = {"train": [storage.join(uri, name) for name in names if "/" not in name]}
        return {split: files for split, files in by_split.items() if files}

    def open(self, uri: str, schema: Schema | None, options: Options) -> Source:
        assert isinstance(options, TabularOptions)
        files = self._files(uri)
        if not files:
            raise DataError(f"{uri}: no files that end in {' or '.join(ENDINGS[self._kind])}")
        first = next(iter(files.values()))[0]
        columns, wide = arrow_files.shape(first, self._kind)[0], list_widths(files, self._kind)
        plan = Plan.of(schema, first, columns.names, wide) if schema else derived_plan(first, columns, wide, options)
        return TabularSource(uri, self._kind, files, schema, plan)

    def create(self, target: Target, options: Options) -> Sink:
        assert isinstance(options, TabularOptions)
        return TabularSink(target, self._kind, options.rows)
