"""What sources yield and encoders take: a slice of a raw log as columns of numbers and canonical keys.

Every raw categorical value is an int64 *canonical key*: `hex` its unsigned 32-bit value, `int` itself, `string`
XXH64 (seed 0) of its UTF-8 bytes, reinterpreted as int64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(slots=True)
class Keys:
    """One sparse feature of a chunk.

    `keys` (int64, or uint32 for hex) has one entry a row for a one-hot feature; otherwise it is flat and `offsets`
    (int64, rows + 1) says where each row's bag starts. `missing` (bool, one entry a row) marks the missing values
    of a one-hot feature, whose keys then mean nothing; None means that none is missing. A missing bag is an empty
    one. `texts`, the strings themselves, one for each key, are kept for raw `string` features while fitting.
    """

    keys: np.ndarray
    missing: np.ndarray | None = None
    offsets: np.ndarray | None = None
    texts: pa.Array | None = None


@dataclass(slots=True)
class RawChunk:
    """`rows` rows of a raw log, columns in schema order.

    `labels` is float32 [rows, L]; `dense` is float64 [rows, D], or float32 where that is exact, with NaN for missing;
    `weight` is float32 [rows], `group` int64 keys [rows], and `time` (float64 or int64, [rows]) orders rows where a
    split by time asks for it. `unmatched` (int8 [rows]) counts the keys of each row that a side table does not have.
    """

    rows: int
    labels: np.ndarray
    dense: np.ndarray
    sparse: list[Keys]
    weight: np.ndarray | None = None
    group: np.ndarray | None = None
    time: np.ndarray | None = None
    unmatched: np.ndarray | None = None
