"""Ordered results, errors in their place, and no threads left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from lanner.prep.overlap import map_ordered


@pytest.fixture(params=["1", "2", "5"], autouse=True)
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LANNER_THREADS", request.param)
    yield
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("lanner-prep", "lanner-feed"))]


def test_results_keep_their_order() -> None:
    def slow(number: int) -> int:
        time.sleep(0.002 * (number % 3))
        return number * number

    assert list(map_ordered(slow, range(40))) == [number * number for number in range(40)]


def test_errors_come_after_the_results_before_them() -> None:
    def items() -> Iterator[int]:
        yield from range(5)
        raise OSError("the source broke")

    seen = []
    with pytest.raises(OSError, match="the source broke"):
        for result in map_ordered(str, items()):
            seen.append(result)
    assert seen == list("01234")
    seen.clear()
    with pytest.raises(ZeroDivisionError):
        for number in map_ordered(lambda k: 6 // (3 - k), range(10)):
            seen.append(number)
    assert seen == [2, 3, 6]


def test_stopping_early_draws_no_more_and_closes_the_source() -> None:
    drawn, closed = [], []

    def items() -> Iterator[int]:
        try:
            for number in range(1000):
                drawn.append(number)
                yield number
        finally:
            closed.append(True)

    results = map_ordered(str, items())
    assert next(results) == "0"  # type: ignore[call-overload]
    results.close()  # type: ignore[attr-defined]
    assert len(drawn) < 20
    assert closed == [True]
