"""The two ways to load a server: so many requests always under way, or so many a second come what may."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from lanner.perf.client import Client, Sample, clock


class Load(Protocol):
    """A running load; `samples` grows while it runs, in order of completion."""

    samples: list[Sample]

    def start(self) -> None: ...
    def stop(self, timeout: float) -> int:
        """Send no more, wait at most `timeout` seconds for what is under way; the number of requests given up."""


class ClosedLoop:
    """`concurrency` requests under way at any time: each answer sends the next request."""

    def __init__(self, client: Client, requests: Sequence[bytes], concurrency: int) -> None:
        self.samples: list[Sample] = []
        self._client, self._requests, self._concurrency = client, requests, concurrency
        self._next = itertools.count()
        self._running = False
        self._ended = threading.Semaphore(0)

    def start(self) -> None:
        self._running = True
        for _ in range(self._concurrency):
            self._send()

    def stop(self, timeout: float) -> int:
        self._running = False
        return self._concurrency - _acquire(self._ended, self._concurrency, timeout)

    def _send(self) -> None:
        request = self._requests[next(self._next) % len(self._requests)]
        self._client.submit(request, clock(), self._done)

    def _done(self, sample: Sample) -> None:
        self.samples.append(sample)
        if self._running:
            self._send()
        else:
            self._ended.release()


class OpenLoop:
    """Requests sent at planned times, whether or not earlier ones were answered.

    A request that cannot go at its time, because the sender is late or `max_in_flight` are under way, keeps its
    planned time, from which its latency counts: the queue of a slow server is not hidden.
    """

    def __init__(
        self, client: Client, requests: Sequence[bytes], rate: float, max_in_flight: int, poisson_seed: int | None
    ) -> None:
        self.samples: list[Sample] = []
        self._client, self._requests = client, requests
        self._gap = _gaps(rate, poisson_seed)
        self._slots = threading.Semaphore(max_in_flight)
        self._max_in_flight = max_in_flight
        self._until = float("inf")
        self._abandoned = False
        self._unsent = 0
        self._thread = threading.Thread(target=self._pace, name="lanner-perf-pace", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> int:
        self._until = clock()
        deadline = self._until + timeout
        self._thread.join(timeout)
        self._abandoned = True
        self._thread.join()
        free = _acquire(self._slots, self._max_in_flight, max(0.0, deadline - clock()))
        return self._unsent + self._max_in_flight - free

    def _pace(self) -> None:
        planned = clock()
        for index in itertools.count():
            if not self._wait(planned):
                return
            while not self._slots.acquire(timeout=0.05):
                if self._abandoned:
                    break
            if self._abandoned:
                self._unsent += 1
            else:
                self._client.submit(self._requests[index % len(self._requests)], planned, self._done)
            planned += self._gap()

    def _wait(self, planned: float) -> bool:
        """Sleep until the planned moment; False once the load was stopped before it."""
        while (left := planned - clock()) > 0 and planned <= self._until:
            time.sleep(min(left, 0.1))
        return planned <= self._until

    def _done(self, sample: Sample) -> None:
        self.samples.append(sample)
        self._slots.release()


def _gaps(rate: float, seed: int | None) -> Callable[[], float]:
    """Seconds between planned sends: even, or exponential (a Poisson process) when there is a seed."""
    if seed is None:
        return lambda: 1.0 / rate
    rng = np.random.default_rng(seed)
    return lambda: float(rng.exponential(1.0 / rate))


def _acquire(semaphore: threading.Semaphore, count: int, timeout: float) -> int:
    """Acquire up to `count` times before the timeout; how many were acquired."""
    deadline = clock() + timeout
    for taken in range(count):
        if not semaphore.acquire(timeout=max(0.0, deadline - clock())):
            return taken
    return count
