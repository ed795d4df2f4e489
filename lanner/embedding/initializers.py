"""First values of table rows.

A value depends on the seed, the table's name, its key (of a static table: its row) and its column alone: not on the
order of the tables or of the keys, on threads, or on how rows are shared out to processes.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np

from lanner.errors import ConfigError
from lanner.kernels import random
from lanner.validation import built


def _check_finite(owner: object, *values: object) -> None:
    for value in values:
        if not (isinstance(value, (int, float)) and math.isfinite(value)):
            raise ConfigError(f"{type(owner).__name__}: found {value!r}, expected a finite number")


@dataclass(frozen=True)
class Uniform:
    """Uniform in [low, high)."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_finite(self, self.low, self.high)
        if not self.low <= self.high:
            raise ConfigError(f"Uniform: low is {self.low!r}, above high {self.high!r}")


@dataclass(frozen=True)
class Normal:
    """Normal with a mean and a standard deviation."""

    mean: float = 0.0
    std: float = 0.01

    def __post_init__(self) -> None:
        _check_finite(self, self.mean, self.std)
        if not self.std >= 0:
            raise ConfigError(f"Normal: std is {self.std!r}, expected at least 0")


@dataclass(frozen=True)
class Constant:
    """The same number everywhere."""

    value: float = 0.0

    def __post_init__(self) -> None:
        _check_finite(self, self.value)


Given = Uniform | Normal | Constant
"""What a user chooses from."""


@dataclass(frozen=True)
class Cut:
    """The values that a part of a table has in the whole: its key k is key k * step + first of the whole.

    The part has the columns from `column` on, as many as it is wide, of the whole's `dim`.
    """

    whole: Given
    first: int
    step: int
    column: int
    dim: int


Initializer = Given | Cut
_CUT_ROWS = 1 << 14  # rows of the whole that are made at once


def default(rows: int | None) -> Uniform:
    """The initializer of a table that has none, by its number of rows; None: a dynamic one."""
    bound = 0.01 if rows is None else math.sqrt(1 / rows)
    return Uniform(-bound, bound)


def describe(initializer: Given) -> dict[str, Any]:
    """The initializer as a JSON-able mapping: its `name` and its settings; `parse` is the inverse."""
    return {"name": type(initializer).__name__, **asdict(initializer)}


def parse(values: dict[str, Any]) -> Given:
    """The initializer that `describe` described. Raises ConfigError naming an unknown name or setting."""
    settings, kinds = dict(values), {kind.__name__: kind for kind in get_args(Given)}
    name = settings.pop("name", None)
    if name not in kinds:
        raise ConfigError(f"initializer {name!r} is not known; expected one of {', '.join(kinds)}")
    initializer: Given = built(kinds[name], settings, f"initializer {name}")
    return initializer


def fill(block: np.ndarray, initializer: Initializer | None, table: str, rows: int, seed: int, first: int = 0) -> None:
    """Fill `block` [n, dim], the rows `first`.. of the table called `table` with `rows` rows in all."""
    initializer = initializer or default(rows)
    if isinstance(initializer, Constant):
        block[:] = initializer.value
        return
    if isinstance(initializer, Cut):
        for begin in range(0, len(block), _CUT_ROWS):
            part = block[begin : begin + _CUT_ROWS]
            fill_keys(part, initializer, table, seed, first + begin + np.arange(len(part)))
        return
    stream, start = stream_of(table, seed), first * block.shape[1]
    if isinstance(initializer, Uniform):
        random.uniform(block, initializer.low, initializer.high, stream, start)
    else:
        random.normal(block, initializer.mean, initializer.std, stream, start)


def fill_keys(block: np.ndarray, initializer: Initializer | None, table: str, seed: int, keys: np.ndarray) -> None:
    """Fill `block` [n, dim], the rows of `keys`, any int64 [n], as `fill` does where a key is a row number.

    The default is uniform in ±0.01: a dynamic table has no number of rows to go by.
    """
    initializer = initializer or default(None)
    if isinstance(initializer, Cut):
        whole = np.empty((len(keys), initializer.dim), np.float32)
        fill_keys(whole, initializer.whole, table, seed, keys * initializer.step + initializer.first)
        block[:] = whole[:, initializer.column : initializer.column + block.shape[1]]
    elif isinstance(initializer, Constant):
        block[:] = initializer.value
    elif isinstance(initializer, Uniform):
        random.uniform_rows(block, keys, initializer.low, initializer.high, stream_of(table, seed))
    else:
        random.normal_rows(block, keys, initializer.mean, initializer.std, stream_of(table, seed))


def stream_of(table: str, seed: int) -> int:
    """A number, 0 .. 2^64 - 1, for a table's name and a seed."""
    digest = hashlib.blake2b(f"{seed}:{table}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
