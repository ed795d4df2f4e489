"""Distinct ids of segments against dicts and np.unique."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.errors import DataError
from lanner.kernels import parallel
from lanner.kernels.unique import reference, unique

ids = st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63), 2**32, 2**33]) | st.integers(-(2**63), 2**63 - 1)
pieces = st.lists(st.lists(ids, max_size=30), max_size=6)


@settings(deadline=None)
@given(pieces, st.data())
def test_equals_the_reference(pieces: list[list[int]], data: st.DataObject) -> None:
    segments = data.draw(st.lists(st.integers(0, 3), min_size=len(pieces), max_size=len(pieces)))
    values, bounds = list(chain(*pieces)), np.cumsum([0, *map(len, pieces)])
    wanted = list(reference.unique(values, bounds.tolist(), segments))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for ids in (np.array(values, np.int64), torch.tensor(values, dtype=torch.int64, device=device)):
        assert [part.tolist() for part in unique(ids, bounds, np.array(segments, np.int64))] == wanted


@settings(deadline=None)
@given(pieces)
def test_every_piece_is_a_segment_by_default(pieces: list[list[int]]) -> None:
    values, bounds = list(chain(*pieces)), np.cumsum([0, *map(len, pieces)])
    distinct, inverse, counts = unique(np.array(values, np.int64), bounds)
    assert distinct.tolist() == [value for piece in pieces for value in dict.fromkeys(piece)]
    assert counts.tolist() == [len(set(piece)) for piece in pieces]
    starts = np.repeat(np.cumsum(counts) - counts, np.diff(bounds))
    assert distinct[starts + inverse].tolist() == values


def test_large_segments_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    values = (random.zipf(1.2, 300_000) % 50_000).astype(np.int32)
    bounds = np.array([0, 10, 10, 120_000, 200_000, 300_000])
    found = {}
    for threads in ("1", "4"):
        monkeypatch.setenv("LANNER_THREADS", threads)
        parallel._pool.cache_clear()
        found[threads] = unique(values, bounds, np.array([0, 1, 2, 0, 3]))
    parallel._pool.cache_clear()
    for one, four in zip(found["1"], found["4"], strict=True):
        assert np.array_equal(one, four)
    distinct, inverse, counts = found["1"]
    first = np.concatenate([values[:10], values[120_000:200_000]])
    assert np.array_equal(np.sort(distinct[: counts[0]]), np.unique(first))
    assert np.array_equal(distinct[: counts[0]][np.concatenate([inverse[:10], inverse[120_000:200_000]])], first)
    assert counts[1] == 0


@pytest.mark.parametrize(
    ("values", "bounds", "segments", "message"),
    [
        (np.zeros(2), [0, 2], None, "float64"),
        (np.zeros((1, 1), np.int64), [0, 1], None, "2-D"),
        (np.zeros(2, np.int64), [0, 1], None, "do not rise from 0 to 2"),
        (np.zeros(2, np.int64), [0, 3, 2], None, "do not rise"),
        (np.zeros(2, np.int64), [0, 2], [0, 1], "2 bounds with 2 segments"),
        (np.zeros(2, np.int64), [0, 2], [-1], "segment -1 is negative"),
        (np.zeros(0, np.int64), [], None, "0 bounds"),
    ],
)
def test_refuses_wrong_input(values: np.ndarray, bounds: list[int], segments: list[int] | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        unique(values, np.array(bounds, np.int64), None if segments is None else np.array(segments))
