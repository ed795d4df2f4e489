"""`Plan`: everything a run of prep is to do, checked before any file is read."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from lanner import storage
from lanner.errors import ConfigError
from lanner.kernels.parallel import threads
from lanner.prep.choices import Choices
from lanner.prep.conventions import Fit
from lanner.prep.encoder import Encoder
from lanner.prep.keys import logged_key
from lanner.prep.sources import ReadOptions, Source, open_source
from lanner.prep.sources.joins import file_state, split_join
from lanner.prep.split import SplitPlan
from lanner.prep.writer import DenseType
from lanner.schema import Schema

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LEAST_MEMORY = 64 << 20
_BLOCK = (64 << 10, 8 << 20)
_MOST_COLUMNS = 10_000
_COPIES = 4
"""Bytes held for each byte of a block underway: its text, its columns and what becomes of them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked run. `files` and, for a split by file, their `file_splits`; `using` is a dataset to encode like.

    `memory` is in bytes: an eighth is for blocks underway, half for counts. `shuffle` is the seed of a global shuffle
    of the training rows; `recipe` is told in the manifest only.
    """

    source: str
    files: list[str]
    schema: Schema
    options: ReadOptions
    out: str
    split: SplitPlan
    file_splits: list[int] | None = None
    fit: Fit = "train"
    strict: bool = True
    rows: int | None = None
    dense_type: DenseType = "float32"
    using: str | None = None
    memory: int = 2 << 30
    shuffle: int | None = None
    recipe: str = "lanner"

    @property
    def builds_histories(self) -> bool:
        """True when histories are made from the rows; without a time they are read."""
        return self.options.time is not None and any(feature.history for feature in self.schema.sparse)

    @property
    def read_schema(self) -> Schema:
        """What is read from the files."""
        return self.schema.without_histories() if self.builds_histories else self.schema

    def stage_key(self, file: str) -> str:
        """Name of the staged copy of `file`: changes with the file's size or age and with how it is read."""
        state = [*file_state(file), *(file_state(split_join(text)[1]) for text in self.options.join)]
        reading = {**asdict(self.options), "block_bytes": None}
        text = json.dumps(
            [1, self.source, file, state, reading, _raw_part(self.read_schema), self.rows], sort_keys=True
        )
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _raw_part(schema: Schema) -> dict[str, Any]:
    """What of a schema decides how raw values are read; encoders and transforms come later."""
    return {
        "labels": [label.model_dump(mode="json") for label in schema.labels],
        "dense": [(number.source, number.raw) for number in schema.dense],
        "sparse": [(f.source, f.raw, f.hotness, f.max_hotness, f.separator, f.blank) for f in schema.sparse],
        "beside": (schema.weight, schema.group),
    }


def memory_bytes(text: str | int) -> int:
    """`2GB`, `512MB`, `1.5G` or a number of bytes. Raises ConfigError when malformed or below 64 MB."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\s*", str(text), re.IGNORECASE)
    if not found:
        raise ConfigError(f"memory {text!r}: expected a size like 2GB or 512MB")
    size = int(float(found[1]) * _UNITS[found[2].upper()])
    if size < _LEAST_MEMORY:
        raise ConfigError(f"memory {text!r}: expected at least 64MB")
    return size


def block_bytes(memory: int) -> int:
    """Bytes of input read at once, so that all blocks underway take an eighth of `memory` (64 KiB to 8 MiB)."""
    least, most = _BLOCK
    return min(max(memory // 8 // (_COPIES * (threads() + 3)), least), most)


def make_plan(
    patterns: list[str],
    out: str,
    source: str,
    schema: Schema | str | os.PathLike[str] | None,
    *,
    split: SplitPlan,
    choices: Choices,
    memory: str | int,
    reading: dict[str, Any],
    using: str | None = None,
    **rest: Any,
) -> Plan:
    """Resolve files and schema and check everything that can be checked without reading data.

    Raises ConfigError, SchemaError, or FileNotFoundError naming a pattern that matches nothing.
    """
    budget = memory_bytes(memory)
    options = _options({"block_bytes": block_bytes(budget), **reading})
    _check_rest(**rest)
    reader = open_source(source)
    if using is not None:
        if schema is not None or choices != Choices():
            raise ConfigError(f"using {using}: its schema and vocabularies are taken as they are, so give neither")
        whole = Encoder.load(using).schema
    else:
        whole = choices.apply(_schema(reader, source, schema, options))
    if not options.labelled:
        whole = whole.model_copy(update={"labels": ()})
    histories = any(feature.history for feature in whole.sparse)
    if split.kind == "time" and options.time is None:
        raise ConfigError("a split by time needs the name of the time column")
    if options.time is not None and split.kind != "time" and not histories:
        raise ConfigError("only a split by time, or a schema with histories, needs the name of the time column")
    reader.check(whole.without_histories() if options.time else whole, options)
    for _, side in map(split_join, options.join):
        if not storage.exists(side):
            raise FileNotFoundError(f"{side}: no such file to join")
    for feature in whole.sparse:
        for value in (feature.fill, feature.blank):
            if value is not None:
                logged_key(feature.raw, value)
    files, file_splits = split.resolve(storage.expand(patterns))
    if folder := next((file for file in files if storage.is_directory(file)), None):
        raise ConfigError(f"{folder} is a directory: name the files in it, for example {folder}/*")
    if len(set(files)) < len(files):
        raise ConfigError(f"{next(f for f in files if files.count(f) > 1)}: given more than once")
    return Plan(source, files, whole, options, out, split, file_splits, using=using, memory=budget, **rest)


def _options(reading: dict[str, Any]) -> ReadOptions:
    known = {field.name for field in fields(ReadOptions)}
    if unknown := sorted(set(reading) - known):
        raise ConfigError(f"unknown option {unknown[0]!r}: expected one of {', '.join(sorted(known))}")
    options = ReadOptions(**reading)
    for name in ("numeric", "categorical"):
        if not 0 <= (count := getattr(options, name)) <= _MOST_COLUMNS:
            raise ConfigError(f"{name} {count}: expected 0 to {_MOST_COLUMNS:,} columns")
    return options


def _check_rest(fit: str, rows: int | None, dense_type: str, shuffle: int | None, **_: Any) -> None:
    if fit not in ("train", "all"):
        raise ConfigError(f"fit {fit!r}: expected train or all")
    if dense_type not in ("float32", "float16"):
        raise ConfigError(f"dense_type {dense_type!r}: expected float32 or float16")
    if shuffle is not None and shuffle < 0:
        raise ConfigError(f"seed {shuffle}: expected at least 0")
    if rows is not None and rows < 1:
        raise ConfigError(f"rows {rows}: expected at least 1")


def _schema(reader: Source, source: str, given: Schema | str | os.PathLike[str] | None, options: ReadOptions) -> Schema:
    if isinstance(given, Schema):
        return given
    if given is not None:
        return Schema.load(given)
    default = reader.schema(options)
    if default is None:
        raise ConfigError(f"source {source}: give a schema that says what the columns are")
    return default
