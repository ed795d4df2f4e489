"""Which ids a feature has in bags, which rows they name, and where their vectors go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lanner.data.batch import Bags
from lanner.embedding.device import HOST
from lanner.embedding.gradients import Part
from lanner.embedding.store import Store
from lanner.embedding.tables import FeatureConfig
from lanner.kernels.layout import FEATURE, FIELDS, FIRST_ROW, POOLINGS, ROWS


def ids_of(bags: Bags, feature: int, batch: int) -> slice:
    """Where the ids of the feature at place `feature` of the bags lie."""
    begin, end = feature * batch, (feature + 1) * batch
    return slice(begin, end) if bags.offsets is None else slice(int(bags.offsets[begin]), int(bags.offsets[end]))


def layouts_of(
    names: tuple[str, ...],
    features: Sequence[FeatureConfig],
    places: Sequence[tuple[int, int]],
    stores: Mapping[str, Store],
) -> list[tuple[Store, np.ndarray]]:
    """For each store the layout of its features in bags with these names (see `lanner.kernels.layout`).

    `places` gives OUT and STRIDE of each feature, `stores` what holds each table.
    """
    lines: dict[int, list[tuple[int, ...]]] = {id(store): [] for store in stores.values()}
    for feature, place in zip(features, places, strict=True):
        store = stores[feature.table]
        span = store.spans[feature.table]
        line = (names.index(feature.name), span.start, span.stop - span.start, POOLINGS[feature.pooling])
        lines[id(store)].append((*line, *place))
    return [
        (store, np.array(sorted(lines[number], key=lambda line: line[1]), np.int64).reshape(-1, FIELDS))
        for number, store in {id(store): store for store in stores.values()}.items()
    ]


def rows_in(layout: np.ndarray, bags: Bags) -> np.ndarray:
    """Rows of the store that the bags name through the layout, with repetitions."""
    bags = bags.to(HOST)
    values, batch = bags.values.numpy(), bags.batch_size
    named = [values[ids_of(bags, int(line[FEATURE]), batch)] + line[FIRST_ROW] for line in layout]
    return np.concatenate(named) if named else np.empty(0, np.int64)


def catch_up(parts: Iterable[Part], training: bool) -> None:
    """Let the rows that parts name take the steps that they missed, or all rows of their stores unless `training`."""
    for part in parts:
        if part.store.absence is not None:
            part.store.catch_up(rows_in(part.layout, in_range(part)) if training else None)


def in_range(part: Part) -> Bags:
    """The part's bags with row 0 instead of rows outside their table."""
    bags, values = part.bags, part.bags.values.clone()
    for line in part.layout:
        ids = values[ids_of(bags, int(line[FEATURE]), bags.batch_size)]
        ids[(ids < 0) | (ids >= int(line[ROWS]))] = 0
    return Bags(bags.names, values, bags.offsets, bags.weights)
