"""`Split`: the rows of a dataset's train, valid or test part, read at memory speed in any order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lanner.data.batch import Bags, Batch
from lanner.data.part import Part, columns
from lanner.data.sparse import SparseColumns, id_type
from lanner.errors import DataError
from lanner.kernels import gather
from lanner.schema import Schema


class Split:
    """All rows of some files, numbered from 0 in the files' order.

    Reading makes no copy but the one into the batch, and may be done from several threads at once.
    """

    def __init__(self, name: str, schema: Schema, parts: Sequence[Part]) -> None:
        """`parts` come from `open_part`; raises DataError naming the first whose column types differ."""
        self.name = name
        self.schema = schema
        self.parts = tuple(part for part in parts if part.rows.sum())
        for part in self.parts:
            if part.types != self.parts[0].types:
                raise DataError(_difference(part, self.parts[0], schema))
        self._starts = np.cumsum(np.concatenate([np.zeros(1, np.int64), *(part.rows for part in self.parts)]))
        self.rows = int(self._starts[-1])
        self._index = {column: index for index, column in enumerate(columns(schema))}
        if self.parts:
            self._plan(self.parts[0])

    @staticmethod
    def open(uri: str) -> Split:
        """One split of a dataset by its directory, such as ``criteo/test``; raises DataError like `Dataset.open`."""
        from lanner.data.dataset import open_split

        return open_split(uri)

    def _plan(self, first: Part) -> None:
        """Bring the addresses of all parts together."""
        values, ends, counts = (
            np.concatenate([getattr(part, field) for part in self.parts]) for field in ("values", "ends", "counts")
        )
        self._types, self._values = first.types, [np.ascontiguousarray(column) for column in values.T]
        begin = len(self.schema.labels) + bool(self.schema.dense)
        sparse = slice(begin, begin + len(self.schema.sparse))
        addresses = (np.ascontiguousarray(array[:, sparse]) for array in (values, ends, counts))
        self._sparse = SparseColumns(self.schema, first.types[sparse], *addresses)

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"Split({self.name!r}, rows={self.rows})"

    def slice(self, start: int, stop: int) -> Batch:
        """Rows start..stop-1 as a batch; raises IndexError unless 0 <= start <= stop <= rows."""
        if not 0 <= start <= stop <= self.rows:
            raise IndexError(f"rows {start}..{stop} of {self.name}, which has {self.rows}")
        return self._gather(np.arange(start, stop, dtype=np.int64))

    def take(self, rows: ArrayLike) -> Batch:
        """The given rows, in the given order and as often as given.

        Raises IndexError for a row that is not there, DataError or IdRangeError naming file, row and column where the
        data are broken.
        """
        chosen = np.ascontiguousarray(rows, dtype=np.int64).reshape(-1)
        if chosen.size and (chosen.min() < 0 or chosen.max() >= self.rows):
            bad = chosen[(chosen < 0) | (chosen >= self.rows)][0]
            raise IndexError(f"row {bad} of {self.name}, which has {self.rows}")
        return self._gather(chosen)

    def _gather(self, rows: NDArray[np.int64]) -> Batch:
        if not rows.size:
            return self._empty()
        places = gather.locate(rows, self._starts)
        read, schema = partial(self._column, places), self.schema
        labels = [read(label.name, np.float32) for label in schema.labels]
        return Batch(
            dense=self._dense(places),
            bags=self._sparse.read(places, lambda sample: self._where(int(rows[sample]))),
            labels=torch.stack(labels, dim=1) if labels else torch.empty(rows.size, 0),
            weight=read(schema.weight, np.float32) if schema.weight else None,
            group=read(schema.group, np.int64) if schema.group else None,
        )

    def _column(self, places: gather.Places, name: str, kind: Any) -> Tensor:
        """A column of one number a row, converted to `kind`."""
        index = self._index[name]
        out = np.empty(places.row.size, kind)
        code = gather.KINDS[self._types[index].element]
        return torch.from_numpy(gather.column(places, self._values[index], code, out))

    def _dense(self, places: gather.Places) -> Tensor:
        if not self.schema.dense:
            return torch.empty(places.row.size, 0)
        index = self._index["dense"]
        stored = np.empty((places.row.size, len(self.schema.dense)), self._types[index].element)
        return torch.from_numpy(gather.block(places, self._values[index], stored).astype(np.float32, copy=False))

    def _where(self, row: int) -> str:
        """File and row within it, for messages."""
        for part in self.parts:
            if row < (count := int(part.rows.sum())):
                return f"{part.name}: row {row}"
            row -= count
        raise IndexError(row)

    def _empty(self) -> Batch:
        """A batch of 0 rows: the share of a rank that the last batch does not reach."""
        schema = self.schema
        ragged = any(not feature.one_hot for feature in schema.sparse)
        ids = torch.from_numpy(np.empty(0, id_type(schema)))
        offsets = torch.zeros(1, dtype=torch.int64) if ragged else None
        return Batch(
            dense=torch.empty(0, len(schema.dense)),
            bags=Bags(tuple(feature.name for feature in schema.sparse), ids, offsets),
            labels=torch.empty(0, len(schema.labels)),
            weight=torch.empty(0) if schema.weight else None,
            group=torch.empty(0, dtype=torch.int64) if schema.group else None,
        )


def _difference(part: Part, first: Part, schema: Schema) -> str:
    for column, ours, theirs in zip(columns(schema), part.types, first.types, strict=True):
        if ours != theirs:
            return f"{part.name}: column {column!r} has type {ours}, but {theirs} in {first.name}"
    return f"{part.name}: its columns differ from those of {first.name}"
