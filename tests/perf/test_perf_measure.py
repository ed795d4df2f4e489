"""Runs against stub servers: counts, errors apart, stalls seen, clean stops."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from perf_stub import Behaviour, grpc_stub, http_stub

from lanner.perf import Settings, run
from lanner.perf.client import ServerError

Stub = Callable[[Behaviour], AbstractContextManager[str]]
BOTH = pytest.mark.parametrize(("protocol", "stub"), [("http", http_stub), ("grpc", grpc_stub)])


def _settings(url: str, protocol: str, **values: object) -> Settings:
    return Settings.parse({"name": "ctr", "url": url, "protocol": protocol, "duration": 0.5, "warmup": 0.1, **values})


@BOTH
def test_a_closed_loop_counts_what_the_server_saw(protocol: str, stub: Stub) -> None:
    behaviour = Behaviour()
    with stub(behaviour) as url:
        report = run(_settings(url, protocol, batch=4, concurrency=(1, 3)))
        served = behaviour.served
    assert [level.load for level in report.levels] == [1, 3]
    # Warm-up, drain and the first trial are outside the windows.
    assert 0 < sum(level.requests for level in report.levels) < served
    assert behaviour.rows == served * 4
    assert behaviour.out_of_range == 0
    for level in report.levels:
        assert (level.errors, level.unanswered) == (0, 0)
        assert level.seconds == pytest.approx(0.5, abs=0.2)
        assert level.requests_per_s == pytest.approx(level.requests / level.seconds)
        assert level.rows_per_s == pytest.approx(4 * level.requests_per_s)
        assert level.latency is not None and level.breakdown is not None
        assert level.latency.p50 <= level.latency.p99 <= level.latency.max
        assert level.breakdown.queue == pytest.approx(1.0)
        assert level.rows_per_execution == pytest.approx(8.0, rel=0.2)
    assert report.server == "stub 0"
    assert report.model["name"] == "ctr" and report.model["max_batch_size"] == 4096


@BOTH
def test_failed_requests_are_listed_apart(protocol: str, stub: Stub) -> None:
    behaviour = Behaviour(decide=lambda n: "shed" if n % 4 == 3 else "")
    with stub(behaviour) as url:
        (level,) = run(_settings(url, protocol, concurrency=(2,))).levels
    assert level.errors / (level.errors + level.requests) == pytest.approx(0.25, abs=0.05)
    (text,) = level.error_texts
    assert text.endswith("shed") and level.error_texts[text] == level.errors
    assert level.requests_per_s == pytest.approx(level.requests / level.seconds)
    assert level.server_failures == pytest.approx(level.errors, abs=3)


def test_the_wrong_protocol_is_told() -> None:
    with grpc_stub(Behaviour()) as url, pytest.raises(ServerError, match=r"as HTTP/1\.1: is it the gRPC port\?$"):
        run(_settings(url, "http", concurrency=(1,)))
    with http_stub(Behaviour()) as url, pytest.raises(ServerError, match=r"not gRPC: is it the HTTP port\?$"):
        run(_settings(url, "grpc", concurrency=(1,)))


def _freezing(every: float, freeze: float) -> Callable[[], float]:
    """Seconds of freeze left, for a server that stands still `freeze` seconds in each `every`, at the end."""
    start = time.perf_counter()

    def left() -> float:
        into = (time.perf_counter() - start) % every
        return every - into if into > every - freeze else 0.0

    return left


@BOTH
def test_an_open_loop_does_not_hide_a_stall(protocol: str, stub: Stub) -> None:
    behaviour = Behaviour()
    with stub(behaviour) as url:
        behaviour.frozen = _freezing(every=2.5, freeze=1.0)
        (level,) = run(_settings(url, protocol, rates=(50.0,), duration=3.0)).levels
    assert level.requests == pytest.approx(150, abs=2)
    assert (level.errors, level.unanswered) == (0, 0)
    assert level.latency is not None
    assert level.latency.p99 >= 800
    assert level.latency.max == pytest.approx(1000, abs=300)


def test_waiting_for_a_free_slot_counts_from_the_planned_time() -> None:
    behaviour = Behaviour(frozen=lambda: 0.0)
    with http_stub(behaviour) as url:
        behaviour.frozen = _freezing(every=1.0, freeze=0.6)
        (level,) = run(_settings(url, "http", rates=(100.0,), duration=1.0, max_in_flight=1)).levels
    # One request at a time stands in the freeze; those planned meanwhile waited in the client.
    assert level.latency is not None and level.breakdown is not None
    assert level.latency.p90 > 300
    assert level.breakdown.wait > 100
    assert level.requests == pytest.approx(100, abs=2)


def test_random_gaps_keep_the_rate() -> None:
    with http_stub(Behaviour()) as url:
        (level,) = run(_settings(url, "http", rates=(400.0,), poisson=True, duration=1.0)).levels
    assert level.requests == pytest.approx(400, abs=90)


@BOTH
def test_requests_without_an_answer_are_given_up(protocol: str, stub: Stub) -> None:
    behaviour = Behaviour()
    with stub(behaviour) as url:
        answered = iter([True] * 20)
        behaviour.frozen = lambda: 0.0 if next(answered, False) else 0.05
        (level,) = run(_settings(url, protocol, concurrency=(2,), timeout=0.3, warmup=0.0)).levels
    assert level.requests < 20
    assert level.errors + level.unanswered >= 2
    assert all("0.3 s" in text or "DEADLINE" in text for text in level.error_texts)


@BOTH
def test_a_stop_reports_what_is_there(protocol: str, stub: Stub) -> None:
    start = time.perf_counter()
    with stub(Behaviour()) as url:
        report = run(
            _settings(url, protocol, concurrency=(1, 2, 4), duration=0.4),
            stopped=lambda: time.perf_counter() - start > 0.8,
        )
    assert report.interrupted
    assert 1 <= len(report.levels) <= 2
    assert report.levels[-1].requests > 0


@BOTH
def test_the_best_level_within_a_limit(protocol: str, stub: Stub) -> None:
    with stub(Behaviour()) as url:
        generous = run(_settings(url, protocol, concurrency=(1, 2), duration=0.2, latency_limit=1e6))
        strict = run(_settings(url, protocol, concurrency=(1,), duration=0.2, latency_limit=1e-6))
    assert generous.best == max(generous.levels, key=lambda level: level.rows_per_s)
    assert strict.best is None


@BOTH
def test_a_refused_first_request_ends_the_run_with_its_reason(protocol: str, stub: Stub) -> None:
    behaviour = Behaviour(decide=lambda n: "id 7 is outside the table")
    with stub(behaviour) as url, pytest.raises(ServerError, match="id 7 is outside"):
        run(_settings(url, protocol, concurrency=(1,)))
    assert behaviour.failed == 3


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_no_server(protocol: str) -> None:
    with pytest.raises(ServerError, match=re.escape("127.0.0.1:9")):
        run(_settings("127.0.0.1:9", protocol, concurrency=(1,), timeout=1.0))


def test_an_unknown_model() -> None:
    with http_stub(Behaviour()) as url, pytest.raises(ServerError, match="no such model"):
        run(Settings(name="other", url=url, protocol="http", concurrency=(1,)))


def test_a_server_without_configuration_and_statistics() -> None:
    """Plain KServe servers have neither call: a leading -1 is the batch, and the client's part is still measured."""
    behaviour = Behaviour(with_schema=False, plain=True)
    with http_stub(behaviour) as url:
        (level,) = run(_settings(url, "http", concurrency=(1,), batch=3, duration=0.2)).levels
    assert level.requests > 0 and behaviour.rows % 3 == 0
    assert level.breakdown is not None and level.breakdown.queue is None
    assert level.rows_per_execution is None and level.server_failures is None
