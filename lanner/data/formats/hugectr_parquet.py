"""HugeCTR's Parquet: parts, `_metadata.json` with the roles of their columns, and `_file_list.txt`."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from lanner import storage
from lanner.data.formats import arrow_files, file_lists
from lanner.data.formats.arrow_files import PartWriter
from lanner.data.formats.arrow_rows import Plan, to_arrow
from lanner.data.formats.base import Block, Format, Options, Sink, Source, Target
from lanner.data.formats.hugectr_raw import Sizes
from lanner.data.formats.rows import plain_columns
from lanner.data.formats.tabular import TabularSource, derived_schema, list_widths
from lanner.errors import ConfigError, DataError
from lanner.prep.transforms import Transforms
from lanner.schema import Schema

METADATA = "_metadata.json"
_ROLES = ("labels", "conts", "cats")


class HugectrParquetOptions(Options):
    """`sizes`: the `slot_size_array`, in the order of `cats`, where there is no schema. On writing: `rows` a file."""

    sizes: Sizes = ()
    rows: int = Field(default=1 << 18, ge=1)


@dataclass(frozen=True, slots=True)
class Metadata:
    """A checked `_metadata.json`: columns by role in the order of their index, and rows by file name."""

    uri: str
    columns: dict[str, list[str]]
    rows: dict[str, int]

    @staticmethod
    def read(uri: str) -> Metadata:
        """Raises DataError naming the file and what it lacks."""
        try:
            found = json.loads(storage.read_text(uri))
            rows = {str(entry["file_name"]).rpartition("/")[2]: int(entry["num_rows"]) for entry in found["file_stats"]}
            columns = {
                role: [str(entry["col_name"]) for entry in sorted(found[role], key=lambda entry: entry["index"])]
                for role in _ROLES
            }
        except (ValueError, KeyError, TypeError) as error:
            wanted = "file_stats (file_name, num_rows), labels, conts and cats (col_name, index)"
            raise DataError(f"{uri}: {type(error).__name__} {error}; expected {wanted}") from error
        names = [name for role in _ROLES for name in columns[role]]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise DataError(f"{uri}: column {repeated[0]!r} is listed twice")
        return Metadata(uri, columns, rows)

    def files(self) -> list[str]:
        """The parts, those of the file list where there is one, each with the rows the metadata say.

        Raises DataError naming a part that is missing, unknown to the metadata or of another length.
        """
        folder = self.uri.rpartition("/")[0]
        listed = file_lists.list_in(folder)
        files = file_lists.read_list(listed) if listed else [storage.join(folder, name) for name in self.rows]
        for file in files:
            name = file.rpartition("/")[2]
            if name not in self.rows:
                raise DataError(f"{self.uri}: file_stats has no {name!r}, which {listed} names")
            if not storage.exists(file):
                raise DataError(f"{file}: {METADATA} names it, but there is no such file")
            if (seen := arrow_files.shape(file, "parquet")[1]) != self.rows[name]:
                raise DataError(f"{file}: {seen} rows, {METADATA} says {self.rows[name]}")
        if not files:
            raise DataError(f"{self.uri}: names no files")
        return files


def _metadata(uri: str) -> dict[str, Metadata]:
    if storage.exists(own := storage.join(uri, METADATA)):
        return {"train": Metadata.read(own)}
    if file_lists.is_list(uri):
        return {"train": Metadata.read(storage.join(uri.rpartition("/")[0] or ".", METADATA))}
    folders = file_lists.split_folders(uri, (METADATA,))
    if not folders:
        raise DataError(f"{uri}: no {METADATA}, here or in train")
    return {split: Metadata.read(storage.join(folder, METADATA)) for split, folder in folders.items()}


class HugectrParquetSink(Sink):
    """Writes each split's parts (labels and numbers float32, ids int64), metadata and list."""

    def __init__(self, target: Target, rows: int) -> None:
        super().__init__(target)
        plain_columns(target.schema, "HugeCTR's Parquet format")
        self._rows, self._transforms = rows, Transforms(target.schema.dense)
        self._writers: dict[str, PartWriter] = {}

    def write(self, split: str, block: Block) -> None:
        if split not in self._writers:
            self._writers[split] = PartWriter(storage.join(self.target.folder, split), "parquet", self._rows)
        batch = to_arrow(block, self.schema, self._transforms, np.float32, lambda _: np.int64)
        self._writers[split].write(batch)

    def close(self) -> None:
        parts = (self.schema.labels, self.schema.dense, self.schema.sparse)
        names = [[part.name for part in role] for role in parts]
        order = {name: at for at, name in enumerate(name for role in names for name in role)}
        roles = {
            role: [{"col_name": name, "index": order[name]} for name in columns]
            for role, columns in zip(_ROLES, names, strict=True)
        }
        for split, writer in self._writers.items():
            writer.close()
            stats = [{"file_name": name, "num_rows": rows} for name, rows in writer.parts.items()]
            folder, final = (storage.join(place, split) for place in (self.target.folder, self.target.final))
            files = [storage.join(final, name) for name in writer.parts]
            file_lists.write_list(storage.join(folder, file_lists.NAMES[0]), files)
            text = json.dumps({"file_stats": stats, **{role: roles[role] for role in ("cats", "conts", "labels")}})
            storage.write_text(storage.join(folder, METADATA), text)

    def drop(self) -> None:
        for writer in self._writers.values():
            writer.drop()


class HugectrParquetFormat(Format):
    name = "hugectr-parquet"
    title = "HugeCTR Parquet"
    options = HugectrParquetOptions

    def recognises(self, uri: str) -> bool:
        if file_lists.is_list(uri):
            return storage.exists(storage.join(uri.rpartition("/")[0] or ".", METADATA))
        here = storage.exists(storage.join(uri, METADATA))
        return here or bool(file_lists.split_folders(uri, (METADATA,)))

    def open(self, uri: str, schema: Schema | None, options: Options) -> Source:
        assert isinstance(options, HugectrParquetOptions)
        found = _metadata(uri)
        first = next(iter(found.values()))
        for other in found.values():
            if other.columns != first.columns:
                raise DataError(f"{other.uri}: lists other columns than {first.uri}")
        files = {split: metadata.files() for split, metadata in found.items()}
        wide = list_widths(files, "parquet")
        dense = tuple((name, wide.get(name, 0)) for name in first.columns["conts"])
        plan = Plan(tuple(first.columns["labels"]), dense, tuple(first.columns["cats"]))
        if options.sizes and len(options.sizes) != len(plan.sparse):
            raise ConfigError(f"{uri}: {len(options.sizes)} sizes for {len(plan.sparse)} cats")
        columns = arrow_files.shape(next(iter(files.values()))[0], "parquet")[0]
        if absent := [name for name in plan.columns if name not in columns.names]:
            raise DataError(f"{first.uri}: column {absent[0]!r} is missing; the file has {', '.join(columns.names)}")
        source = TabularSource(uri, "parquet", files, schema or derived_schema(plan, columns, options.sizes), plan)
        source.any_hotness = schema is None
        _agree(source.schema, plan, first.uri)
        return source

    def create(self, target: Target, options: Options) -> Sink:
        assert isinstance(options, HugectrParquetOptions)
        return HugectrParquetSink(target, options.rows)


def _agree(schema: Schema, plan: Plan, uri: str) -> None:
    """A schema from elsewhere must name the columns that the metadata list, in their order."""
    ours = [[part.name for part in parts] for parts in (schema.labels, schema.dense, schema.sparse)]
    theirs = [list(plan.labels), plan.numbers, list(plan.sparse)]
    for role, mine, listed in zip(_ROLES, ours, theirs, strict=True):
        if mine != listed:
            raise DataError(f"{uri}: {role} lists {', '.join(listed)}; the schema has {', '.join(mine)}")
