"""`LocalTables`: lookups in the tables of a collection where this process has all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from lanner.data.batch import Bags
from lanner.embedding import checks
from lanner.embedding.arrangement import Arrangement
from lanner.embedding.backed.holds import Hold
from lanner.embedding.gradients import Backend, Part
from lanner.embedding.keyed import KeyedTables
from lanner.embedding.named import catch_up, in_range, layouts_of
from lanner.embedding.prepared import Prepared
from lanner.embedding.store import Store
from lanner.embedding.tables import FeatureConfig, TableConfig
from lanner.kernels.lookup import lookup


class LocalTables:
    """The tables in `homes`, stores by table; `features` look them up, to where `arrangement` says."""

    def __init__(
        self,
        homes: Mapping[str, Store],
        features: Sequence[FeatureConfig],
        configs: Mapping[str, TableConfig],
        arrangement: Arrangement,
    ) -> None:
        self._homes, self._features, self._configs, self._arrangement = homes, features, configs, arrangement
        self._keyed = KeyedTables(homes, features)
        self._layouts: dict[tuple[str, ...], list[tuple[Store, np.ndarray]]] = {}

    def hold(self, bags: Bags, training: bool, backend: Backend) -> tuple[dict[str, Hold], bool]:
        """See `KeyedTables.hold`; before the GPU's kernels run, ids of all tables are looked at.

        Ids mostly come from the host, whereas to ask the device would be to wait for it.
        """
        holds, strays = self._keyed.hold(bags, training)
        if backend == "gpu":
            strays |= any(checks.out_of_range(bags, self._features, self._configs))
        return holds, strays

    def lookup(
        self, prepared: Prepared, step: int, out: Tensor, winners: Tensor | None, backend: Backend
    ) -> tuple[tuple[Part, ...], bool]:
        """Fill `out` and `winners`; what was looked up for step number `step`, and whether ids were out of range.

        Those take row 0.
        """
        bags = self._keyed.with_rows(prepared, step)
        parts = tuple(Part(store, layout, bags) for store, layout in self._layouts_for(prepared))
        catch_up(parts, prepared.training)
        found = [
            lookup(
                store.weights, layout, bags.values, bags.offsets, bags.weights, bags.batch_size, out, winners,
                backend=backend,
            )
            for store, layout, _ in parts
        ]  # fmt: skip
        strays = prepared.strays or (backend != "gpu" and any(found))
        if strays and prepared.training:  # whoever sums gradients by row must not meet such ids
            parts = tuple(part._replace(bags=in_range(part)) for part in parts)
        return parts, strays

    def _layouts_for(self, bags: Bags) -> list[tuple[Store, np.ndarray]]:
        """How the features lie in `bags` and in the output, for each store."""
        if bags.names in self._layouts:
            return self._layouts[bags.names]
        layouts = layouts_of(bags.names, self._features, self._arrangement.places(bags), self._homes)
        if self._arrangement.fixed:
            self._layouts[bags.names] = layouts
        return layouts
