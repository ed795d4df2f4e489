"""First values of table rows.

A value depends on the seed, the table's name, its key (of a static table: its row) and its column alone: not on the
order of the tables or of the keys, on threads, or on how rows are shared out to processes.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np

from lanner.errors import ConfigError
from lanner.kernels import random


@dataclass(frozen=True)
class Uniform:
    """Uniform in [low, high)."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ConfigError(f"Uniform: low is {self.low!r}, above high {self.high!r}")


@dataclass(frozen=True)
class Normal:
    """Normal with a mean and a standard deviation."""

    mean: float = 0.0
    std: float = 0.01

    def __post_init__(self) -> None:
        if not self.std >= 0:
            raise ConfigError(f"Normal: std is {self.std!r}, expected at least 0")


@dataclass(frozen=True)
class Constant:
    """The same number everywhere."""

    value: float = 0.0


Initializer = Uniform | Normal | Constant


def fill(block: np.ndarray, initializer: Initializer | None, table: str, rows: int, seed: int, first: int = 0) -> None:
    """Fill `block` [n, dim], the rows `first`.. of the table called `table` with `rows` rows in all."""
    if initializer is None:
        bound = math.sqrt(1 / rows)
        initializer = Uniform(-bound, bound)
    if isinstance(initializer, Constant):
        block[:] = initializer.value
        return
    stream, start = _stream(table, seed), first * block.shape[1]
    if isinstance(initializer, Uniform):
        random.uniform(block, initializer.low, initializer.high, stream, start)
    else:
        random.normal(block, initializer.mean, initializer.std, stream, start)


def fill_keys(block: np.ndarray, initializer: Initializer | None, table: str, seed: int, keys: np.ndarray) -> None:
    """Fill `block` [n, dim], the rows of `keys`, any int64 [n], as `fill` does where a key is a row number.

    The default is uniform in ±0.01: a dynamic table has no number of rows to go by.
    """
    initializer = initializer or Uniform(-0.01, 0.01)
    if isinstance(initializer, Constant):
        block[:] = initializer.value
    elif isinstance(initializer, Uniform):
        random.uniform_rows(block, keys, initializer.low, initializer.high, _stream(table, seed))
    else:
        random.normal_rows(block, keys, initializer.mean, initializer.std, _stream(table, seed))


def _stream(table: str, seed: int) -> int:
    digest = hashlib.blake2b(f"{seed}:{table}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
