"""Dense transforms of a whole block at once, each column with its own rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanner.kernels import parallel
from lanner.kernels.numeric import cpu

CODES = {
    "none": cpu.NONE,
    "log1p_clip0": cpu.LOG1P,
    "log_shift3_missing0": cpu.LOG_SHIFT3,
    "log_minus_min_plus2": cpu.LOG_MINUS_MIN,
    "standard": cpu.STANDARD,
    "log1p_standard": cpu.LOG1P_STANDARD,
    "bucketize": cpu.BUCKETIZE,
}
_GRAIN = 1 << 12


@dataclass(frozen=True, slots=True)
class Rules:
    """One rule a column: `codes` (of CODES), `fill` (NaN: none), and two numbers `a` and `b` (float64 [D]).

    a and b are (minimum, -), (mean, std > 0), or for bucketize where its boundaries begin and end in `boundaries`.
    """

    codes: np.ndarray
    fill: np.ndarray
    a: np.ndarray
    b: np.ndarray
    boundaries: np.ndarray


def transform(rules: Rules, dense: np.ndarray) -> np.ndarray:
    """Apply `rules` to float64 or float32 [rows, D] with NaN for missing → float32 [rows, D], finite for finite input.

    Infinite input gives NaN. The formulas are in `lanner.prep.transforms`.
    """
    out = np.empty(dense.shape, np.float32)
    columns = (rules.codes, rules.fill, rules.a, rules.b, rules.boundaries)
    parallel.run(cpu.transform, len(dense), dense, *columns, out, grain=_GRAIN)
    return out


def count_missing(dense: np.ndarray) -> np.ndarray:
    """How many entries of each column of float64 or float32 [rows, D] are NaN: int64 [D]."""
    counts = np.zeros(dense.shape[1], np.int64)
    cpu.count_missing(dense, counts)
    return counts


def narrowed(dense: np.ndarray) -> np.ndarray:
    """float64 [rows, D] in C order as float32 where that loses nothing but the payloads of NaNs, else as it is."""
    narrow = np.empty(dense.shape, np.float32)
    return narrow if cpu.narrow(dense.reshape(-1), narrow.reshape(-1)) else dense
