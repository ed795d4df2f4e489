"""Rows of a dynamic table on their way out or in."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import torch

from lanner.embedding.dynamic.arrays import RowArrays
from lanner.embedding.store import Rows
from lanner.errors import DataError
from lanner.kernels.usage import COUNT, MOST, USED

META = {"meta.used": USED, "meta.count": COUNT}
"""What is kept beside the optimizer's state: the step of the last use, and the number of uses."""

_BLOCK = 1 << 22  # bytes of weights worked on at once


def slices(rows: int, dim: int) -> Iterator[slice]:
    """Cuts `rows` rows of `dim` float32 into blocks of some megabytes."""
    step = max(_BLOCK // (4 * dim), 1)
    for begin in range(0, rows, step):
        yield slice(begin, begin + step)


def weights(arrays: RowArrays, rows: np.ndarray) -> np.ndarray:
    """Weights of rows, float32 [n, dim], a copy."""
    copied: np.ndarray = arrays.weights[torch.from_numpy(rows)].float().numpy()
    return copied


def blocks(arrays: RowArrays, lock: threading.RLock, rows: np.ndarray, keys: np.ndarray) -> Iterator[Rows]:
    """Those of `rows` that still have their `keys` when their turn comes."""
    for part in slices(len(rows), arrays.weights.shape[1]):
        with lock:
            block = _block(arrays, rows[part], keys[part])
        if len(block.keys):
            yield block


def _block(arrays: RowArrays, rows: np.ndarray, keys: np.ndarray) -> Rows:
    rows = rows[(arrays.keys[rows] == keys) & (arrays.usage[rows, COUNT] > 0)]
    at = torch.from_numpy(rows)
    states = {name: state[at].numpy() for name, state in arrays.states.items()}
    meta = {name: arrays.usage[rows, column].astype(np.int64) for name, column in META.items()}
    return Rows(arrays.keys[rows], weights(arrays, rows), states | meta)


def check(name: str, arrays: RowArrays, dim: int, rows: Rows) -> None:
    """Raise DataError unless `rows` are distinct rows of this table."""
    count = len(rows.keys)
    states = {name: (count, *state.shape[1:]) for name, state in arrays.states.items()}
    shapes: dict[str, tuple[int, ...]] = {"weights": (count, dim)} | states | dict.fromkeys(META, (count,))
    for what, values in (("weights", rows.weights), *rows.states.items()):
        if what not in shapes:
            raise DataError(f"table {name!r}: there is no state {what!r}; it has {', '.join(states) or 'none'}")
        if values.shape != shapes[what]:
            raise DataError(f"table {name!r}: {what} of {count} keys has shape {values.shape}, expected {shapes[what]}")
    if not (rows.keys[1:] > rows.keys[:-1]).all() and len(np.unique(rows.keys)) < count:  # most often they rise
        keys, times = np.unique(rows.keys, return_counts=True)
        raise DataError(f"table {name!r}: key {keys[times > 1][0]} comes twice among the rows to put in")


def check_room(name: str, wanted: int, room: int) -> None:
    """Raise DataError when there is not enough room."""
    if wanted > room:
        raise DataError(
            f"table {name!r}: {wanted:,} rows are to be put in, there is room for {room:,}; raise max_rows or max_bytes"
        )


def write(arrays: RowArrays, at: np.ndarray, rows: Rows, step: int) -> None:
    """Set the values of the rows numbered `at`."""
    arrays.set_rows(at, np.asarray(rows.weights, np.float32))
    arrays.usage[at, USED] = rows.states.get("meta.used", step)
    if "meta.count" in rows.states:
        arrays.usage[at, COUNT] = np.clip(rows.states["meta.count"], 1, MOST)
    index = torch.from_numpy(at)
    for name in arrays.states.keys() & rows.states.keys():
        values = torch.from_numpy(np.ascontiguousarray(rows.states[name]))
        arrays.states[name].index_copy_(0, index, values.to(arrays.states[name].dtype))
