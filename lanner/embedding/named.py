"""Which ids a feature has in bags, and which rows they name."""

from __future__ import annotations

import numpy as np

from lanner.data.batch import Bags
from lanner.embedding.gradients import Part
from lanner.kernels.layout import FEATURE, FIRST_ROW, ROWS


def ids_of(bags: Bags, feature: int, batch: int) -> slice:
    """Where the ids of the feature at place `feature` of the bags lie."""
    begin, end = feature * batch, (feature + 1) * batch
    return slice(begin, end) if bags.offsets is None else slice(int(bags.offsets[begin]), int(bags.offsets[end]))


def rows_in(layout: np.ndarray, bags: Bags) -> np.ndarray:
    """Rows of the store that the bags name through the layout, with repetitions."""
    values, batch = bags.values.numpy(), bags.batch_size
    named = [values[ids_of(bags, int(line[FEATURE]), batch)] + line[FIRST_ROW] for line in layout]
    return np.concatenate(named) if named else np.empty(0, np.int64)


def in_range(part: Part) -> Bags:
    """The part's bags with row 0 instead of rows outside their table."""
    bags, values = part.bags, part.bags.values.clone()
    for line in part.layout:
        ids = values[ids_of(bags, int(line[FEATURE]), bags.batch_size)]
        ids[(ids < 0) | (ids >= int(line[ROWS]))] = 0
    return Bags(bags.names, values, bags.offsets, bags.weights)
