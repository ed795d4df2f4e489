"""Percentiles are NumPy's; server counters are differences per request; the parts add up to the mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perf_stub import Behaviour

from lanner.perf.statistics import Breakdown, Counters, Latency, growth, spread, tally


@given(st.lists(st.floats(0, 10, allow_nan=False), min_size=1, max_size=300))
def test_percentiles_are_those_of_numpy(seconds: list[float]) -> None:
    found = Latency.of(np.array(seconds))
    assert found is not None
    milliseconds = np.array(seconds) * 1e3
    for name, q in (("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99), ("max", 100)):
        assert getattr(found, name) == pytest.approx(np.percentile(milliseconds, q))
    assert found.mean == pytest.approx(milliseconds.mean())


@given(st.permutations(range(90)), st.floats(0.5, 0.95))
def test_growth_is_that_of_the_queue(order: list[int], capacity: float) -> None:
    """A server that answers `capacity` of the requests that come leaves the rest to wait."""
    planned = np.array(order) / 10.0
    done = 0.01 + planned / capacity
    times = np.stack([planned, planned, planned, done, done], axis=1)
    assert growth(times) == pytest.approx(6.0 * (1 / capacity - 1))
    times[:, 4] = planned + 0.01
    assert growth(times) == pytest.approx(0.0, abs=1e-9)
    assert growth(times[:2]) == 0.0


def test_an_empty_window_has_no_figures() -> None:
    assert Latency.of(np.empty(0)) is None
    assert Breakdown.of(np.empty((0, 5)), None) is None
    assert spread(np.empty(0), 0.0, 1.0) == 0.0


def test_counters_are_differences_over_all_versions() -> None:
    stub = Behaviour(served=10, failed=1, rows=40)
    before = Counters.read(stub.statistics())
    stub.served, stub.failed, stub.rows = 30, 4, 120
    answer = stub.statistics()
    idle = {"name": "ctr", "version": "2", "inference_count": "0", "inference_stats": {}}
    answer["model_stats"].append(idle)
    after = Counters.read(answer)
    assert before is not None and after is not None
    window = after.since(before)
    assert (window.rows, window.count["success"], window.count["fail"]) == (80, 20, 3)
    assert window.mean_ms("queue") == pytest.approx(1.0)
    assert window.mean_ms("success") == pytest.approx(4.0)


def test_the_parts_add_up_to_the_mean() -> None:
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.uniform(0.001, 0.02, (50, 5)), axis=1)
    times[:, 3] += 0.05  # the answers come late enough for the 4 ms the server accounts for
    times[:, 4] += 0.05
    server = Counters.read(Behaviour(served=50, rows=50).statistics())
    for counters in (server, None):
        parts = Breakdown.of(times, counters)
        assert parts is not None
        total = sum(part for part in parts.model_dump().values() if part is not None)
        assert total == pytest.approx((times[:, 4] - times[:, 0]).mean() * 1e3)
        assert (parts.queue is None) == (counters is None)


def test_spread_and_tally() -> None:
    assert spread(np.array([0.1, 0.2, 1.5, 2.5]), 0.0, 3.0) == pytest.approx(1 / (4 / 3))
    assert list(tally(["b", "a", "a"]).items()) == [("a", 2), ("b", 1)]
