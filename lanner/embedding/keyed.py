"""`KeyedTables`: rows in place of ids, for the tables of this process whose ids are not row numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lanner.data.batch import Bags
from lanner.embedding.backed.holds import Hold
from lanner.embedding.backed.table import BackedTable
from lanner.embedding.named import ids_of
from lanner.embedding.prepared import Prepared
from lanner.embedding.store import Store
from lanner.embedding.tables import FeatureConfig


class KeyedTables:
    """Those of `homes`, stores by table, that are keyed; `features` look them up."""

    def __init__(self, homes: Mapping[str, Store], features: Sequence[FeatureConfig]) -> None:
        self._stores = {table: store for table, store in homes.items() if store.keyed}
        self._features = {
            table: [feature.name for feature in features if feature.table == table] for table in self._stores
        }

    def hold(self, bags: Bags, training: bool) -> tuple[dict[str, Hold], bool]:
        """Begin to bring the rows of bags into memory, where tables live on disk; whether ids are out of range.

        Such ids stand for row 0.
        """
        holds, strays = {}, False
        for table, store in self._stores.items():
            if isinstance(store, BackedTable):
                ids = self._ids(bags, self._spans(bags, table))
                outside = (ids < 0) | (ids >= store.rows)
                if outside.any():
                    ids[outside], strays = 0, True
                holds[table] = store.hold(ids, training)
        return holds, strays

    def with_rows(self, prepared: Prepared, step: int) -> Bags:
        """The bags with rows instead of ids; keys are taken in for step number `step` when training."""
        if not self._stores:
            return prepared
        values = prepared.values.long().clone()
        rows = values.numpy()
        for table, store in self._stores.items():
            spans = self._spans(prepared, table)
            if table in prepared.holds:
                found = prepared.holds[table].rows()
            else:
                store.step = step
                found = store.rows_of(table, self._ids(prepared, spans), prepared.training)
            for span in spans:
                count = span.stop - span.start
                rows[span], found = found[:count], found[count:]
        return Bags(prepared.names, values, prepared.offsets, prepared.weights)

    def _spans(self, bags: Bags, table: str) -> list[slice]:
        return [ids_of(bags, bags.names.index(name), bags.batch_size) for name in self._features[table]]

    @staticmethod
    def _ids(bags: Bags, spans: Sequence[slice]) -> np.ndarray:
        """A copy, int64, of the ids there."""
        values = bags.values.numpy()
        ids: np.ndarray = np.concatenate([values[span] for span in spans]).astype(np.int64, copy=False)
        return ids
