"""Which rows go to train, valid and test.

| split | `valid` and `test` are | rule |
|---|---|---|
| `none` | not given | every row goes to train (to test when an older dataset's encoding is reused) |
| `sequential` | fractions, or numbers of rows | in input order: train first, then valid, test last |
| `random` | fractions | by a hash of the row's number in the input and `seed`: the same however the work is cut |
| `time` | points in time T, or fractions | to the latest split with time >= T: ties at T fall on the later side |
| `file` | globs | all rows of a matching file; files named only here are read as well |
| `day` | `first` and `second` | the halves of the last file, in input order; of a single file, of its last seventh |

A fraction of n rows is floor(fraction * n), but at least one row; for a split by time it is the latest rows, and T the
earliest time among them. Without `split`, it is sequential with a tenth each
for valid and test; a part that would leave no training row is then left out (valid first). The first half of a day
of an odd number of rows is the larger one, or the smaller one as `first-floor`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from fnmatch import fnmatch
from fractions import Fraction
from typing import Literal, get_args

import numpy as np

from lanner import storage
from lanner.errors import ConfigError, DataError
from lanner.kernels.hashing import bucket

SplitKind = Literal["none", "sequential", "random", "time", "file", "day"]
Share = float | int | str | None
SPLITS = ("train", "valid", "test")
_DEFAULT = 0.1
_HALVES = ("first", "first-floor", "second")
_DAYS = 7
"""Into how many days a single file is cut, as Facebook's script cuts the Kaggle log."""
_RANGE = 2**53


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """What was asked for; `kind` None is the default, `into` is where rows go that nothing else claims.

    Raises ConfigError for parts that do not fit the kind.
    """

    kind: SplitKind | None = None
    valid: Share = None
    test: Share = None
    seed: int = 0
    into: str = "train"

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in get_args(SplitKind):
            raise ConfigError(f"split {self.kind!r}: expected one of {', '.join(get_args(SplitKind))}")
        for name, share in self._shares():
            _check_share(self.kind or "sequential", name, share)
        if self.kind not in (None, "none") and self.valid is None and self.test is None:
            raise ConfigError(f"split {self.kind}: give valid, test or both")
        if sum(filter(None, (_fraction(self.kind, share) for _, share in self._shares()))) >= 1:
            raise ConfigError(f"valid {self.valid} and test {self.test} leave no rows for training")
        if self.kind == "day" and (self.valid == "second") == (self.test == "second"):
            raise ConfigError(
                f"split day: valid {self.valid} and test {self.test}; expected one of them to be second and the other "
                "first or first-floor"
            )
        if self.kind == "time" and self.valid is not None and self.test is not None:
            by_fraction = _fraction("time", self.valid) is not None
            if by_fraction != (_fraction("time", self.test) is not None):
                raise ConfigError(f"split time: valid {self.valid} and test {self.test} mix a fraction and a time")
            if not by_fraction and time_value(self.valid) >= time_value(self.test):
                raise ConfigError(f"split time: valid begins at {self.valid}, expected before test ({self.test})")

    def _shares(self) -> list[tuple[str, Share]]:
        return [("valid", self.valid), ("test", self.test)]

    @property
    def is_default(self) -> bool:
        """True when nothing was asked for."""
        return self.kind is None and self.valid is None and self.test is None

    def resolve(self, files: list[str]) -> tuple[list[str], list[int] | None]:
        """The files to read and, for a split by file, the index into SPLITS of each.

        Raises FileNotFoundError where a glob matches neither one of `files` nor any other file.
        """
        if self.kind != "file":
            return files, None
        split = dict.fromkeys(files, 0)
        for index, (_, pattern) in enumerate(self._shares(), start=1):
            if pattern is not None:
                named = [file for file in files if fnmatch(file.rpartition("/")[2], str(pattern))]
                split |= dict.fromkeys(named or storage.expand([str(pattern)]), index)
        return list(split), list(split.values())

    def asked_for(self) -> list[str]:
        """The splits that must not be empty."""
        return [self.into, *(name for name, share in self._shares() if share is not None)]

    def describe(self) -> dict[str, Share]:
        """For the manifest."""
        if self.is_default:
            return {"split": "sequential", "valid": _DEFAULT, "test": _DEFAULT, "seed": None}
        seed = self.seed if self.kind == "random" else None
        return {"split": self.kind or "sequential", "valid": self.valid, "test": self.test, "seed": seed}

    def bind(
        self,
        rows: int,
        files: list[int] | None = None,
        times: Callable[[], np.ndarray] | None = None,
        file_rows: Sequence[int] = (),
    ) -> Assignment:
        """The rule for `rows` rows in all; `files` as from `resolve`, `times` gives the times of all rows.

        `times` is asked for only by a split into fractions by time (8 bytes a row while it runs); `file_rows` are the
        rows of each file, for a split by day. Raises DataError when no row is left to train.
        """
        if self.kind == "none":
            return Assignment("none", whole=SPLITS.index(self.into))
        if self.is_default:
            return Assignment("sequential", bounds=_bounds(rows, *_default_sizes(rows)))
        if self.kind in (None, "sequential"):
            sizes = [_size(name, share, rows) for name, share in self._shares()]
            if sum(sizes) >= rows:
                raise DataError(
                    f"{rows} rows in all: {sizes[0]} for valid and {sizes[1]} for test leave none for training"
                )
            return Assignment("sequential", bounds=_bounds(rows, *sizes))
        if self.kind == "random":
            shares = [share if isinstance(share, float) else 0.0 for _, share in self._shares()]
            limits = (_RANGE - int((shares[0] + shares[1]) * _RANGE), _RANGE - int(shares[1] * _RANGE))
            return Assignment("random", bounds=limits, seed=self.seed)
        if self.kind == "time":
            return Assignment("time", bounds=self._times(rows, times))
        if self.kind == "day":
            return self._halves(rows, file_rows)
        return Assignment("file", files=files)

    def _halves(self, rows: int, file_rows: Sequence[int]) -> Assignment:
        day = file_rows[-1] if len(file_rows) > 1 else rows // _DAYS
        if not 2 <= day < rows:
            raise DataError(
                f"split day: {day} of {rows} rows are of the last day, expected at least 2, and fewer than all"
            )
        first = day // 2 if "first-floor" in (self.valid, self.test) else -(-day // 2)
        order = (0, 2, 1) if self.valid == "second" else (0, 1, 2)
        return Assignment("sequential", bounds=(rows - day, rows - day + first), order=order)

    def _times(self, rows: int, times: Callable[[], np.ndarray] | None) -> tuple[float, float]:
        """Where valid and test begin; infinity for one that was not asked for."""
        fractions = [_fraction("time", share) for _, share in self._shares()]
        if fractions == [None, None]:
            valid, test = (math.inf if share is None else time_value(share) for _, share in self._shares())
            return valid, test
        assert times is not None
        sizes = [_size(name, share, rows) for (name, _), share in zip(self._shares(), fractions, strict=True)]
        first = _bounds(rows, *sizes)
        ordered = np.partition(times(), [max(at, 0) for at in first if at < rows])
        valid, test = (ordered[max(at, 0)].item() if size else math.inf for at, size in zip(first, sizes, strict=True))
        return valid, test


@dataclass(frozen=True, slots=True)
class Assignment:
    """The rule, ready to apply; see the module's docstring.

    `order` lists the splits in which rows lie before, between and after the bounds.
    """

    kind: str
    bounds: tuple[float, float] = (math.inf, math.inf)
    order: tuple[int, int, int] = (0, 1, 2)
    seed: int = 0
    files: list[int] | None = None
    whole: int = 0

    def of(self, file: int, first_row: int, rows: int, times: Callable[[], np.ndarray]) -> int | np.ndarray:
        """Index into SPLITS of each of `rows` adjacent rows of file number `file`; one number when all are the same.

        `first_row` is the first one's number in the whole input; `times` gives their times where they matter.
        """
        if self.kind == "none":
            return self.whole
        if self.files is not None:
            return self.files[file]
        if self.kind == "time":
            return self._by_value(times())
        valid, test = self.bounds
        last = first_row + rows - 1
        if self.kind == "sequential" and (last < valid or first_row >= test or valid <= first_row <= last < test):
            return self.order[int(first_row >= valid) + int(first_row >= test)]
        numbers = np.arange(first_row, first_row + rows, dtype=np.int64)
        return self._by_value(bucket(numbers, self.seed, _RANGE) if self.kind == "random" else numbers)

    def _by_value(self, values: np.ndarray) -> np.ndarray:
        valid, test = self.bounds
        # the latest split claims a row first, also where only one of the two is there
        return np.array(self.order, np.int8)[np.where(values >= test, np.int8(2), (values >= valid).astype(np.int8))]


def _fraction(kind: str | None, share: Share) -> float | None:
    """`share` as a fraction of the rows, where it is one; for a split by time also as text."""
    if kind == "time" and isinstance(share, str):
        try:
            share = float(share)
        except ValueError:
            return None
    return share if isinstance(share, float) and 0 < share < 1 else None


def time_value(value: Share) -> float | int:
    """A point in time: a number as it is, or an ISO date or time as microseconds since 1970 (UTC unless it says)."""
    if not isinstance(value, str):
        return 0 if value is None else value
    try:
        return int(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ConfigError(f"split time: {value!r} is neither a number nor a date like 2024-05-01T12:00") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds


def _check_share(kind: str, name: str, share: Share) -> None:
    if share is None:
        return
    if kind == "none":
        raise ConfigError(f"split none: every row goes to train, so {name}={share!r} has no effect")
    if kind == "file" and not isinstance(share, str):
        raise ConfigError(f"split file: {name} is {share!r}, expected a glob of files")
    if kind == "day" and share not in _HALVES:
        raise ConfigError(f"split day: {name} is {share!r}, expected one of {', '.join(_HALVES)}")
    if kind == "time":
        time_value(share)
    if kind in ("sequential", "random"):
        fraction = isinstance(share, float) and 0 < share < 1
        count = isinstance(share, int) and share >= 1 and kind == "sequential"
        if not fraction and not count:
            number = " or a number of rows" if kind == "sequential" else ""
            raise ConfigError(f"split {kind}: {name} is {share!r}, expected a fraction between 0 and 1{number}")


def _size(name: str, share: Share, rows: int) -> int:
    if share is None:
        return 0
    return share if isinstance(share, int) else max(int(Fraction(str(share)) * rows), 1)


def _default_sizes(rows: int) -> tuple[int, int]:
    size = max(int(_DEFAULT * rows), 1)
    return (size if rows > 2 * size else 0), (size if rows > size else 0)


def _bounds(rows: int, valid: int, test: int) -> tuple[int, int]:
    return rows - test - valid, rows - test
