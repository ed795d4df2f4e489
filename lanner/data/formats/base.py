"""The protocol of the formats: a `Source` yields blocks of rows, a `Sink` takes them, a `Format` makes both."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from lanner.errors import ConfigError
from lanner.prep.writer import BATCH_ROWS
from lanner.schema import Schema

BLOCK_ROWS = BATCH_ROWS
"""Most rows of a block: as many as a record batch of a dataset has."""

NAMED = 20
"""Damaged records that are named one by one; of the others the number must do."""

SPLITS = ("train", "valid", "test")

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Ids:
    """Ids of one feature, integers: one a row, or flat with `offsets` (int64 [rows + 1])."""

    values: Array
    offsets: Array | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of a split, in the order of its schema.

    `labels` [rows, L] are numbers. `dense` [rows, D] are numbers as the model sees them where they are floats, and
    raw counts, yet to be transformed as the schema says, where they are integers. `file` and `row` say where the
    first row lies, for messages; formats with a file for each column list those in `files`, and `numbers` gives the
    place of each row in its file where they are not all there.
    """

    file: str
    row: int
    labels: Array
    dense: Array
    ids: tuple[Ids, ...]
    weight: Array | None = None
    group: Array | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    numbers: Array | None = None

    @property
    def rows(self) -> int:
        return len(self.labels)

    def where(self, row: int, column: str) -> str:
        """File, row within it and column of a cell, for messages."""
        place = self.row + row if self.numbers is None else int(self.numbers[row])
        return f"{self.files.get(column, self.file)}: row {place}, column {column!r}"


class Source(ABC):
    """Something opened for reading.

    `schema` is what it holds; a table whose size is not known before the rows are read has `rows` None there, and
    `any_hotness` says that its features were taken for ragged for want of knowing better. `rows` counts the rows by
    split, None where that takes reading them. `skipped` counts the records left out because they are damaged, as far
    as the blocks have been read; `damaged` names the first of them.
    """

    any_hotness = False
    format = ""
    """Name of the format it was opened as."""

    def __init__(self, uri: str, schema: Schema, rows: Mapping[str, int | None]) -> None:
        self.uri = uri
        self.schema = schema
        self.rows = dict(rows)
        self.skipped = 0
        self.damaged: list[str] = []

    def skip(self, why: str) -> None:
        """Count a damaged record."""
        self.skipped += 1
        if len(self.damaged) < NAMED:
            self.damaged.append(why)

    @abstractmethod
    def blocks(self, split: str) -> Iterator[Block]:
        """The rows of a split in order, at most BLOCK_ROWS at a time.

        Raises DataError naming the file where it breaks the contract of its format. Ids and labels are not compared
        with the schema: that is left to `lanner.data.formats.checks`.
        """

    def details(self) -> dict[str, Any]:
        """What the format itself says beyond schema and rows."""
        return {}


@dataclass(frozen=True, slots=True)
class Target:
    """Where and what a sink writes: into `folder`, which will be called `final` when all is done."""

    folder: str
    final: str
    schema: Schema
    rows: Mapping[str, int | None]


class Sink(ABC):
    """Writes one dataset, split after split; a context manager that is left without an error when all is written.

    `reading` holds the options to read the files with.
    """

    def __init__(self, target: Target, reading: Mapping[str, Any] | None = None) -> None:
        self.target = target
        self.schema = target.schema
        self.reading = dict(reading or {})

    @abstractmethod
    def write(self, split: str, block: Block) -> None:
        """Append rows. Raises DataError or ConfigError where the format cannot hold them exactly."""

    @abstractmethod
    def close(self) -> None:
        """Finish every file."""

    def drop(self) -> None:  # noqa: B027 - most sinks hold nothing that outlives them
        """Give up after an error; the files are removed by the caller."""

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        else:
            self.drop()


class Options(BaseModel):
    """Choices that a format takes as `name=value`; those without any have none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def chosen(self) -> dict[str, Any]:
        """Those that are not the defaults, as JSON holds them."""
        return self.model_dump(mode="json", exclude_defaults=True)


def _listed(value: Any) -> Any:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


Numbers = Annotated[tuple[int, ...], BeforeValidator(_listed)]
"""An option of several whole numbers, as text parted by commas."""

Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
"""An option of several names, as text parted by commas."""


class Format(ABC):
    """A way to lay rows out in files: `name` on the command line, `title` for people."""

    name: str
    title: str
    options: type[Options] = Options

    @abstractmethod
    def recognises(self, uri: str) -> bool:
        """Whether the names of the files at `uri` say without doubt that they are of this format."""

    @abstractmethod
    def open(self, uri: str, schema: Schema | None, options: Options) -> Source:
        """Open for reading what lies at `uri`; `schema` is given, carried along beside it, or None.

        Raises DataError, ConfigError or SchemaError naming what does not fit, before rows are read.
        """

    @abstractmethod
    def create(self, target: Target, options: Options) -> Sink:
        """Open for writing. Raises ConfigError where the format cannot hold what the schema says."""

    def parse(self, given: Mapping[str, Any]) -> Options:
        """The format's options; raises ConfigError naming the one at fault and those there are."""
        try:
            return self.options.model_validate(dict(given))
        except ValidationError as error:
            problem = error.errors()[0]
            at = ".".join(str(step) for step in problem["loc"])
            known = ", ".join(self.options.model_fields) or "none"
            text = problem["msg"] if at in self.options.model_fields else f"no such option; there are: {known}"
            raise ConfigError(f"{self.name}: option {at!r} = {problem['input']!r}: {text}") from error


def text_of(uri: str | os.PathLike[str]) -> str:
    """`uri` as text without slashes at its end."""
    return os.fspath(uri).rstrip("/") or "/"
