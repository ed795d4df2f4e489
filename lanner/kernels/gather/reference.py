"""The gathers in plain NumPy over lists of arrays: slow, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def column(rows: NDArray[np.int64], segments: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Rows of the concatenation of `segments`."""
    return np.concatenate(segments)[rows]


def bags(rows: NDArray[np.int64], segments: Sequence[Sequence[NDArray[Any]]]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Offsets [B + 1] and ids of the bags `rows` of a list column given as one array a row, segment by segment."""
    lists = [bag for segment in segments for bag in segment]
    chosen = [lists[row] for row in rows]
    offsets = np.concatenate([[0], np.cumsum([bag.size for bag in chosen], dtype=np.int64)])
    return offsets, np.concatenate(chosen) if chosen else np.empty(0, np.int64)
