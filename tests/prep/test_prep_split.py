"""Splits: which row goes where, by every rule, and what cannot be split."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.errors import ConfigError, DataError
from lanner.prep.split import Assignment, SplitPlan, time_value


def assigned(rule: Assignment, rows: int, cuts: list[int], times: np.ndarray | None = None) -> list[int]:
    """The split of each row when the input is cut into chunks at `cuts`."""
    found: list[int] = []
    bounds = [0, *sorted(cut for cut in cuts if 0 < cut < rows), rows]
    for begin, end in itertools.pairwise(bounds):
        part = rule.of(0, begin, end - begin, lambda b=begin, e=end: times[b:e])  # type: ignore[index,misc]
        found += [part] * (end - begin) if isinstance(part, int) else part.tolist()
    return found


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 60), st.lists(st.integers(0, 200), max_size=8))
def test_sequential_counts_of_rows_wherever_chunks_end(train: int, valid: int, test: int, cuts: list[int]) -> None:
    rows = train + valid + test
    rule = SplitPlan("sequential", valid, test).bind(rows)
    assert assigned(rule, rows, cuts) == [0] * train + [1] * valid + [2] * test


@pytest.mark.parametrize(
    ("rows", "sizes"), [(1, (1, 0, 0)), (2, (1, 0, 1)), (3, (1, 1, 1)), (37, (31, 3, 3)), (10_000, (8000, 1000, 1000))]
)
def test_default_gives_a_tenth_each_and_never_starves_training(rows: int, sizes: tuple[int, int, int]) -> None:
    found = assigned(SplitPlan().bind(rows), rows, [])
    assert tuple(found.count(split) for split in range(3)) == sizes


@given(st.integers(2, 40), st.integers(1, 60), st.booleans(), st.booleans(), st.lists(st.integers(0, 100), max_size=6))
def test_halves_of_the_last_day(day: int, before: int, floor: bool, test_first: bool, cuts: list[int]) -> None:
    first, rows = day // 2 if floor else day - day // 2, before + day
    names = ("first-floor" if floor else "first", "second")
    valid, test = reversed(names) if test_first else names
    rule = SplitPlan("day", valid, test).bind(rows, file_rows=[before, day])
    halves = (2, 1) if test_first else (1, 2)
    assert assigned(rule, rows, cuts) == [0] * before + [halves[0]] * first + [halves[1]] * (day - first)


def test_fractions_are_of_the_decimal_as_written() -> None:
    found = assigned(SplitPlan("sequential", test=0.29).bind(100), 100, [])
    assert found.count(2) == 29


@given(st.lists(st.integers(0, 2000), max_size=10), st.integers(0, 2**40))
def test_random_is_the_same_however_chunks_are_cut(cuts: list[int], seed: int) -> None:
    rule = SplitPlan("random", 0.2, 0.3, seed).bind(2000)
    assert assigned(rule, 2000, cuts) == assigned(rule, 2000, [])


def test_random_shares_are_near_their_fractions_and_depend_on_the_seed() -> None:
    first, second = (assigned(SplitPlan("random", 0.2, 0.3, seed).bind(20_000), 20_000, []) for seed in (0, 1))
    for split, share in ((1, 0.2), (2, 0.3)):
        assert abs(first.count(split) / 20_000 - share) < 4 * math.sqrt(share * (1 - share) / 20_000)
    assert first != second


def test_time_ties_fall_on_the_later_side() -> None:
    times = np.array([5, 1, 3, 2, 3, 4, 5, 0])
    rule = SplitPlan("time", 3, 5).bind(len(times))
    assert assigned(rule, len(times), [3], times) == [2, 0, 1, 0, 1, 1, 2, 0]
    only_test = SplitPlan("time", test=3).bind(len(times))
    assert assigned(only_test, len(times), [], times) == [2, 0, 2, 0, 2, 2, 2, 0]


def test_time_fractions_are_the_latest_rows_and_ties_stay_together() -> None:
    times = np.array([50, 10, 30, 20, 30, 40, 55, 0, 30, 60])
    rule = SplitPlan("time", 0.2, "0.3").bind(len(times), times=lambda: times)
    assert assigned(rule, len(times), [4], times) == [2, 0, 1, 0, 1, 1, 2, 0, 1, 2]  # valid takes all three 30s
    only_test = SplitPlan("time", test=0.1).bind(len(times), times=lambda: times)
    assert assigned(only_test, len(times), [], times) == [0] * 9 + [2]
    with pytest.raises(ConfigError, match="mix a fraction and a time"):
        SplitPlan("time", 0.2, 1000)
    with pytest.raises(ConfigError, match="no rows for training"):
        SplitPlan("time", 0.5, "0.5")


def test_time_values() -> None:
    assert time_value("17") == 17
    assert time_value("1.5") == 1.5
    assert time_value("1970-01-02") == 86400 * 10**6
    assert time_value("1970-01-01T01:00:00+01:00") == 0
    assert time_value("1970-01-01T00:00:00.000001") == 1
    with pytest.raises(ConfigError, match="yesterday"):
        time_value("yesterday")


def test_files_by_name_by_path_and_by_glob_of_others(tmp_path: Path) -> None:
    for name in ("day_0", "day_1", "day_2", "late_0"):
        (tmp_path / name).touch()
    days = [str(tmp_path / f"day_{k}") for k in range(3)]
    assert SplitPlan("file", "day_1", str(tmp_path / "day_2")).resolve(days) == (days, [0, 1, 2])
    files, splits = SplitPlan("file", test=str(tmp_path / "late_*")).resolve(days)
    assert files == [*days, str(tmp_path / "late_0")]
    assert splits == [0, 0, 0, 2]
    with pytest.raises(FileNotFoundError, match="week"):
        SplitPlan("file", test="week_*").resolve(days)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (("weekly", None, None), "weekly"),
        (("none", 0.1, None), "no effect"),
        (("sequential", None, None), "give valid, test or both"),
        (("sequential", 1.5, None), "1.5"),
        (("sequential", -3, None), "-3"),
        (("sequential", 0.5, 0.5), "leave no rows"),
        (("random", 100, None), "100"),
        (("time", "soon", None), "soon"),
        (("time", 5, 5), "before test"),
        (("file", 0.1, None), "glob"),
    ],
)
def test_plans_that_make_no_sense_are_refused(plan: tuple[str, object, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SplitPlan(*plan)  # type: ignore[arg-type]


def test_parts_larger_than_the_input_are_refused() -> None:
    with pytest.raises(DataError, match="50 rows in all: 0 for valid and 50 for test"):
        SplitPlan("sequential", test=50).bind(50)
