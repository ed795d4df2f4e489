"""The sparse columns of a split: gathers ids into `Bags` and checks them against their tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lanner.data.batch import Bags
from lanner.data.part import ColumnType
from lanner.errors import DataError, IdRangeError
from lanner.kernels import gather
from lanner.schema import Schema

_UNLIMITED = 2**64 - 1

Where = Callable[[int], str]
"""Names file and row of a sample of the batch, for messages."""


def id_type(schema: Schema) -> Any:
    """NumPy type of a batch's ids: int32 when every table has at most 2^31 rows, else int64."""
    return np.int32 if all(last < 2**31 for last in _lasts(schema)) else np.int64


def _lasts(schema: Schema) -> list[int]:
    """The largest legal id of every feature, as an unsigned number; tables that grow take any key."""
    rows = (schema.table(feature.table_name).rows for feature in schema.sparse)
    return [count - 1 if isinstance(count, int) else _UNLIMITED for count in rows]


class SparseColumns:
    """F feature columns over S segments, given by the addresses that `Part` describes, [S, F] each."""

    def __init__(
        self,
        schema: Schema,
        types: tuple[ColumnType, ...],
        values: NDArray[np.int64],
        ends: NDArray[np.int64],
        counts: NDArray[np.int64],
    ) -> None:
        self.schema = schema
        self.names = tuple(feature.name for feature in schema.sparse)
        self.id_type = id_type(schema)
        self._values, self._ends, self._counts = values, ends, counts
        self._kinds = np.array([gather.KINDS[kind.element] for kind in types], np.uint8)
        self._widths = np.array([kind.offsets for kind in types], np.uint8)
        self._lasts = np.array(_lasts(schema), np.uint64)

    def read(self, places: gather.Places, where: Where) -> Bags:
        """The bags of the rows at `places`; raises DataError or IdRangeError naming the cell at fault."""
        if not self._widths.any():
            ids = np.empty((len(self.names), places.row.size), self.id_type)
            bad = gather.ids(places, self._values, self._kinds, self._lasts, ids)
            self._refuse(bad, where)
            return Bags(self.names, torch.from_numpy(ids.reshape(-1)))
        offsets = self._offsets(places, where)
        ids = np.empty(int(offsets[-1]), self.id_type)
        bad = gather.bags(places, self._values, self._kinds, self._lasts, self._ends, self._widths, offsets, ids)
        self._refuse(bad, where)
        return Bags(self.names, torch.from_numpy(ids), torch.from_numpy(offsets))

    def _offsets(self, places: gather.Places, where: Where) -> NDArray[np.int64]:
        offsets = gather.lengths(places, self._ends, self._widths, self._counts)
        if isinstance(offsets, tuple):
            bag, sample = offsets
            raise DataError(f"{where(sample)}, column {self.names[bag]!r}: the list's offsets do not fit its ids")
        batch = places.row.size
        for index, feature in enumerate(self.schema.sparse):
            if feature.one_hot or feature.hotness is None:
                continue
            lengths = np.diff(offsets[index * batch : (index + 1) * batch + 1])
            for sample in np.flatnonzero(lengths != feature.hotness)[:1].tolist():
                seen = f"{where(sample)}, column {feature.name!r}: {lengths[sample]} ids"
                raise DataError(f"{seen}; the schema says hotness {feature.hotness}")
        return offsets

    def _refuse(self, bad: tuple[int, int, int] | None, where: Where) -> None:
        if bad is None:
            return
        feature, sample, value = bad
        table = self.schema.table(self.schema.sparse[feature].table_name)
        raise IdRangeError(
            f"{where(sample)}, column {self.names[feature]!r}: id {value} lies outside table {table.name!r} "
            f"(0..{int(self._lasts[feature])})"
        )
