"""Splits that lie in matrices side by side: labels, numbers and ids, a row each for every sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lanner.data.formats import fixed
from lanner.data.formats.base import Array, Block, Ids, Source
from lanner.data.formats.checks import exactly
from lanner.data.formats.fixed import FixedRows
from lanner.data.formats.schemas import table_rows
from lanner.errors import ConfigError, DataError
from lanner.schema import Schema


@dataclass(frozen=True, slots=True)
class Matrices:
    """Files of as many rows. `ids` is a matrix for each feature, as wide as its hotness, or one for all together.

    Row 0 is row `first` of the files.
    """

    labels: FixedRows
    dense: FixedRows
    ids: tuple[FixedRows, ...]
    first: int = 0

    @property
    def files(self) -> list[FixedRows]:
        return [self.labels, self.dense, *self.ids]

    @property
    def rows(self) -> int:
        """Raises DataError naming the file that has another number of rows."""
        return fixed.same_rows(self.files)

    def part(self, first: int, rows: int) -> Matrices:
        """Some of the rows."""
        labels, dense, *ids = (file.part(first, rows) for file in self.files)
        return Matrices(labels, dense, tuple(ids), self.first + first)

    def check(self, schema: Schema) -> None:
        """Raise DataError naming the file that is not as wide, or of a type other, than the schema says."""
        widths = [feature.hotness or 1 for feature in schema.sparse]
        expected = [(self.labels, len(schema.labels), "labels"), (self.dense, len(schema.dense), "numbers")]
        if len(self.ids) == 1 and len(widths) > 1:
            expected.append((self.ids[0], sum(widths), "ids"))
        elif len(self.ids) != len(widths):
            raise DataError(f"{self.ids[0].uri if self.ids else ''}: {len(self.ids)} features, not {len(widths)}")
        else:
            names = [f"ids of {feature.name!r}" for feature in schema.sparse]
            expected += zip(self.ids, widths, names, strict=True)
        for file, width, what in expected:
            if file.width != width or file.dtype.kind not in "iufb":
                raise DataError(f"{file.uri}: {file.width} {what} of {file.dtype} a row, expected {width}")


class MatrixSource(Source):
    """Each split is read from some Matrices; `modulo` takes ids modulo the sizes of their tables."""

    def __init__(self, uri: str, schema: Schema, splits: Mapping[str, Sequence[Matrices]], modulo: bool) -> None:
        for parts in splits.values():
            for part in parts:
                part.check(schema)
        super().__init__(uri, schema, {split: sum(p.rows for p in parts) for split, parts in splits.items()})
        self._splits = dict(splits)
        self._sizes = table_rows(schema) if modulo else [None] * len(schema.sparse)
        if modulo and None in self._sizes:
            raise ConfigError(f"{uri}: modulo needs the sizes of all tables")

    def blocks(self, split: str) -> Iterator[Block]:
        for part in self._splits[split]:
            for first, (labels, dense, *ids) in fixed.blocks(part.files):
                block = Block(part.labels.uri, part.first + first, labels, dense, (), files=self._files(part))
                yield replace(block, ids=tuple(self._ids(block, ids)))

    def _files(self, part: Matrices) -> dict[str, str]:
        uris = [file.uri for file in part.ids] if len(part.ids) > 1 else [part.ids[0].uri] * len(self.schema.sparse)
        named = {feature.name: uri for feature, uri in zip(self.schema.sparse, uris, strict=True)}
        return {**dict.fromkeys((number.name for number in self.schema.dense), part.dense.uri), **named}

    def _ids(self, block: Block, matrices: list[Array]) -> Iterator[Ids]:
        at = 0
        for index, (feature, size) in enumerate(zip(self.schema.sparse, self._sizes, strict=True)):
            width = feature.hotness or 1
            whole = len(matrices) == 1 and len(self.schema.sparse) > 1
            columns = matrices[0][:, at : at + width] if whole else matrices[index]
            at += width
            for column in range(width if columns.dtype.kind == "f" else 0):
                exactly(columns[:, column], np.int64, block, feature.name)
            values = np.ascontiguousarray(columns).reshape(-1).astype(np.int64)
            ends = None if width == 1 else np.arange(block.rows + 1, dtype=np.int64) * width
            yield Ids(values % size if size else values, ends)
