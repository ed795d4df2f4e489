"""Encoded rows of one request, and how the rows of several requests become one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from lanner.data.batch import Bags
from lanner.schema import Schema


@dataclass(slots=True)
class Rows:
    """`count` rows, ids checked against their tables.

    dense: float32 [count, D]; ids: int64 [count, one-hot features] in schema order; bags: for each feature that is
    not one-hot its flat ids (int64) and the number of them in each row (int64 [count]).
    """

    count: int
    dense: np.ndarray
    ids: np.ndarray
    bags: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


def merge(requests: Sequence[Rows], schema: Schema) -> tuple[np.ndarray, Bags]:
    """One batch of all rows in order: dense float32 [B, D] and the bags of all features."""
    dense = requests[0].dense if len(requests) == 1 else np.concatenate([rows.dense for rows in requests])
    names = tuple(feature.name for feature in schema.sparse)
    count = sum(rows.count for rows in requests)
    one_hot = np.empty((requests[0].ids.shape[1], count), dtype=np.int64)
    start = 0
    for rows in requests:
        one_hot[:, start : start + rows.count] = rows.ids.T
        start += rows.count
    if not requests[0].bags:
        return dense, Bags(names, torch.from_numpy(one_hot.reshape(-1)))
    return dense, _ragged(requests, schema, one_hot, count)


def _ragged(requests: Sequence[Rows], schema: Schema, one_hot: np.ndarray, count: int) -> Bags:
    values: list[np.ndarray] = []
    lengths: list[np.ndarray] = []
    columns, bag = iter(one_hot), 0
    ones = np.ones(count, dtype=np.int64)
    for feature in schema.sparse:
        if feature.one_hot:
            values.append(next(columns))
            lengths.append(ones)
            continue
        values += [rows.bags[bag][0] for rows in requests]
        lengths += [rows.bags[bag][1] for rows in requests]
        bag += 1
    offsets = np.zeros(len(schema.sparse) * count + 1, dtype=np.int64)
    np.cumsum(np.concatenate(lengths), out=offsets[1:])
    names = tuple(feature.name for feature in schema.sparse)
    return Bags(names, torch.from_numpy(np.concatenate(values)), torch.from_numpy(offsets))
