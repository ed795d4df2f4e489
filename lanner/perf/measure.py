"""Runs the levels: warm up, measure a window between two readings of the server's statistics, drain."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone

import numpy as np

from lanner.perf import requests
from lanner.perf.client import Client, Sample, ServerError, clock, open_client
from lanner.perf.load import ClosedLoop, Load, OpenLoop
from lanner.perf.model import Model, describe
from lanner.perf.results import Level, Report
from lanner.perf.settings import Settings
from lanner.perf.statistics import Breakdown, Counters, Latency, growth, spread, tally

DRAIN_SECONDS = 2.0
"""How long an interrupted run still waits for what is under way."""


def run(
    settings: Settings,
    stopped: Callable[[], bool] = lambda: False,
    on_level: Callable[[Level], None] = lambda level: None,
) -> Report:
    """Measure every level of `settings`, in order.

    `stopped` is asked about 20 times a second; once it says yes, the window under way ends and the report holds what
    is there. `on_level` sees each level as it is done. Raises ConfigError for requests the model cannot take and
    ServerError when the server cannot be reached or refuses the first request.
    """
    client = open_client(settings)
    try:
        report, pool = _prepare(client, settings)
        for load in settings.levels:
            if stopped():
                break
            level = _measure(client, pool, settings, load, stopped)
            if level is not None:
                report.levels.append(level)
                on_level(level)
        report.interrupted = stopped()
    finally:
        client.close()
    return report


def _prepare(client: Client, settings: Settings) -> tuple[Report, list[bytes]]:
    """Ask the server what it serves, build the requests, and try one."""
    server = client.server()
    model = describe(client.metadata(), client.config())
    pool = requests.build(model, settings)
    client.connect(1)
    _try(client, pool[0], settings)
    report = Report(
        settings=settings,
        server=" ".join(str(server.get(key, "")) for key in ("name", "version")).strip(),
        model=_summary(model),
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        distinct_requests=len(pool),
        request_bytes=round(sum(map(len, pool)) / len(pool)),
        levels=[],
    )
    return report, pool


def _summary(model: Model) -> dict[str, str | int | list[str] | None]:
    return {
        "name": model.name,
        "versions": list(model.versions),
        "platform": model.platform,
        "max_batch_size": model.max_batch_size,
        "schema": model.schema.fingerprint() if model.schema else None,
    }


def _try(client: Client, request: bytes, settings: Settings) -> None:
    """Send one request, three times at most; raises ServerError with the server's reason when none is answered."""
    answers: queue.SimpleQueue[Sample] = queue.SimpleQueue()
    for _ in range(3):
        client.submit(request, clock(), answers.put)
        try:
            sample = answers.get(timeout=settings.timeout + 1)
        except queue.Empty as error:
            raise ServerError(f"no answer to the first request within {settings.timeout:g} s") from error
        if not sample.error:
            return
    raise ServerError(f"the first request failed: {sample.error}")


def _load(client: Client, pool: Sequence[bytes], settings: Settings, level: float) -> Load:
    if settings.concurrency:
        client.connect(int(level))
        return ClosedLoop(client, pool, int(level))
    seed = settings.seed if settings.poisson else None
    return OpenLoop(client, pool, level, settings.max_in_flight, seed)


def _measure(
    client: Client, pool: Sequence[bytes], settings: Settings, level: float, stopped: Callable[[], bool]
) -> Level | None:
    """One level; None when it was stopped before its window began."""
    load = _load(client, pool, settings, level)
    load.start()
    try:
        _sleep(settings.warmup, stopped)
        if stopped():
            load.stop(DRAIN_SECONDS)
            return None
        before = _counters(client)
        cpu, start = time.process_time(), clock()
        _sleep(settings.duration, stopped)
        end, cpu = clock(), time.process_time() - cpu
        # What is still under way does not belong to a closed loop's window, so the server is read before it ends.
        after = _counters(client) if settings.concurrency else None
        unanswered = load.stop(DRAIN_SECONDS if stopped() else settings.timeout)
        after = after or _counters(client)
    except BaseException:
        load.stop(0.0)
        raise
    server = after.since(before) if before and after else None
    return _evaluate(load.samples, settings, level, (start, end), server, unanswered, cpu / (end - start))


def _counters(client: Client) -> Counters | None:
    """The server's statistics; None where it keeps none, or is too busy to tell: the client's part is still good."""
    try:
        return Counters.read(client.statistics())
    except ServerError:
        return None


def _evaluate(
    samples: Sequence[Sample],
    settings: Settings,
    level: float,
    window: tuple[float, float],
    server: Counters | None,
    unanswered: int,
    client_cpu: float,
) -> Level:
    """The window's figures. A closed loop counts what was answered in it, an open loop what was planned in it."""
    start, end = window
    closed = bool(settings.concurrency)
    inside = [sample for sample in samples if _belongs(sample, start, end, closed)]
    errors = [sample.error for sample in inside if sample.error]
    times = np.array([sample[:5] for sample in inside if not sample.error], np.float64).reshape(-1, 5)
    # An open loop's answers may come after the window: the rate is over the time they really took.
    last = end if closed or not len(times) else max(end, float(times[:, 4].max()))
    seconds, count = last - start, len(times)
    return Level(
        load=level,
        seconds=seconds,
        requests=count,
        errors=len(errors),
        unanswered=unanswered,
        error_texts=tally(errors),
        requests_per_s=count / seconds,
        rows_per_s=count * settings.batch / seconds,
        latency=Latency.of(times[:, 4] - times[:, 0]),
        breakdown=Breakdown.of(times, server),
        rows_per_execution=server.rows / server.executions if server and server.executions > 0 else None,
        server_failures=server.count["fail"] if server else None,
        growth=growth(times),
        spread=spread(times[:, 4], start, last),
        client_cpu=client_cpu,
    )


def _belongs(sample: Sample, start: float, end: float, closed: bool) -> bool:
    if not closed:
        return start <= sample.planned < end
    # A request that was under way at the end and failed later must not go unseen.
    return start <= sample.done and (sample.done < end or (sample.error != "" and sample.planned < end))


def _sleep(seconds: float, stopped: Callable[[], bool]) -> None:
    """Sleep in slices, so that a stop is noticed."""
    until = clock() + seconds
    while (left := until - clock()) > 0 and not stopped():
        time.sleep(min(left, 0.05))
