"""The queue before a model: requests are merged into batches and their scores given back one by one."""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import numpy as np

from lanner.serve.failure import RequestError, StoppingError, cancelled, expired, overloaded
from lanner.serve.rows import Rows
from lanner.serve.statistics import Durations, Statistics


@dataclass(frozen=True, slots=True)
class Policy:
    """How requests are batched.

    `dynamic` off runs each request by itself. On, a batch runs when its rows equal a preferred size, when no further
    request fits, or when its oldest request has waited `max_delay_ns`; merging stops at the largest preferred size
    (at `max_rows` when none is preferred), and only a single request may be larger, up to `max_rows`. `max_queue`
    counts waiting requests and `timeout_us` bounds their wait; 0 means no limit.
    """

    max_rows: int
    dynamic: bool = True
    preferred: tuple[int, ...] = ()
    max_delay_ns: int = 0
    max_queue: int = 0
    timeout_us: int = 0


@dataclass(slots=True)
class Timing:
    """Nanoseconds of the parts of one execution."""

    compute_input: int
    compute_infer: int
    compute_output: int


class Runs(Protocol):
    """One instance of a model: scores for each of the requests merged into one batch."""

    def __call__(self, requests: Sequence[Rows], /) -> tuple[list[np.ndarray], Timing]: ...


class Ticket:
    """A request in the batcher; `done(ticket)` is called once, from any thread, when `scores` or `error` is set.

    `arrived` and `encoding_ns` come from the front end: when the request came in (time.perf_counter_ns) and how long
    its raw values took to encode. `version` names the model version that answers.
    """

    __slots__ = ("arrived", "done", "encoding_ns", "error", "expires", "queued", "rows", "scores", "version", "waiting")

    def __init__(
        self, rows: Rows, done: Callable[[Ticket], None], arrived: int, encoding_ns: int = 0, timeout_us: int = 0
    ) -> None:
        self.rows = rows
        self.done = done
        self.arrived = arrived
        self.encoding_ns = encoding_ns
        self.expires = timeout_us * 1000
        self.version = ""
        self.queued = 0
        self.waiting = False
        self.scores: np.ndarray | None = None
        self.error: RequestError | None = None


class Batcher:
    """Queue, batching policy and worker threads (one for each of `instances`) of one model version."""

    def __init__(self, name: str, policy: Policy, instances: Sequence[Runs], statistics: Statistics) -> None:
        self._name, self._policy, self._statistics = name, policy, statistics
        self._limit = max(policy.preferred, default=policy.max_rows)
        self._queue: deque[Ticket] = deque()
        self._stopping = False
        self._changed = threading.Condition()
        self._deadlines = _Deadlines(f"{name}-deadlines", self._expire)
        self._workers = [
            threading.Thread(target=self._work, args=(run,), name=f"{name}-{index}", daemon=True)
            for index, run in enumerate(instances)
        ]
        for worker in self._workers:
            worker.start()

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    def submit(self, ticket: Ticket) -> None:
        """Queue a request. Raises RequestError when the queue is full, the batch too large or the model stopping."""
        if ticket.rows.count > self._policy.max_rows:
            raise RequestError(f"inference request batch-size must be <= {self._policy.max_rows} for '{self._name}'")
        timeout = ticket.expires or self._policy.timeout_us * 1000
        if self._policy.timeout_us:
            timeout = min(timeout, self._policy.timeout_us * 1000)
        with self._changed:
            if self._stopping:
                raise StoppingError(self._name)
            if self._policy.max_queue and len(self._queue) >= self._policy.max_queue:
                raise overloaded()
            ticket.queued = time.perf_counter_ns()
            ticket.expires = ticket.queued + timeout if timeout else 0
            ticket.waiting = True
            self._queue.append(ticket)
            self._changed.notify()
        if ticket.expires:
            self._deadlines.add(ticket)

    def cancel(self, ticket: Ticket) -> None:
        """Drop a request that has not started; one that runs already is left to finish."""
        self._drop(ticket, cancelled())

    def stop(self) -> None:
        """Finish what is queued, then end the threads; new requests are refused."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()
        self._deadlines.stop()

    def _expire(self, ticket: Ticket) -> None:
        self._drop(ticket, expired())

    def _drop(self, ticket: Ticket, error: RequestError) -> None:
        with self._changed:
            if not ticket.waiting:
                return
            ticket.waiting = False
            self._queue.remove(ticket)
        self._fail(ticket, error)

    def _work(self, run: Runs) -> None:
        while batch := self._next():
            self._run(run, batch)

    def _next(self) -> list[Ticket]:
        """Wait for a batch; empty when the batcher has stopped."""
        with self._changed:
            while True:
                if not self._queue:
                    if self._stopping:
                        return []
                    self._changed.wait()
                    continue
                taken, wait_ns = self._plan(time.perf_counter_ns())
                if taken:
                    batch = [self._queue.popleft() for _ in range(taken)]
                    for ticket in batch:
                        ticket.waiting = False
                    return batch
                self._changed.wait(wait_ns / 1e9)

    def _plan(self, now: int) -> tuple[int, int]:
        """Number of requests to run now, or 0 and the nanoseconds to wait for more."""
        if not self._policy.dynamic:
            return 1, 0
        rows = fitting = preferred = 0
        for ticket in self._queue:
            rows += ticket.rows.count
            if fitting and rows > self._limit:
                return preferred or fitting, 0
            fitting += 1
            if rows in self._policy.preferred:
                preferred = fitting
        left = self._queue[0].queued + self._policy.max_delay_ns - now
        if preferred:
            return preferred, 0
        if rows >= self._limit or left <= 0 or self._stopping:
            return fitting, 0
        return 0, left

    def _run(self, run: Runs, batch: list[Ticket]) -> None:
        started = time.perf_counter_ns()
        try:
            scores, timing = run([ticket.rows for ticket in batch])
        except Exception as error:
            if len(batch) > 1:  # one of them broke it: the others must not suffer
                for ticket in batch:
                    self._run(run, [ticket])
                return
            failure = error if isinstance(error, RequestError) else RequestError(str(error), 500, "BACKEND")
            self._fail(batch[0], failure)
            return
        self._answer(batch, scores, timing, started)

    def _answer(self, batch: list[Ticket], scores: list[np.ndarray], timing: Timing, started: int) -> None:
        """Give out the scores; a request with a score that is not finite fails, its neighbours do not."""
        ended = time.perf_counter_ns()
        wrong = [_not_finite(values) for values in scores]
        good = [ticket for ticket, error in zip(batch, wrong, strict=True) if error is None]
        durations = [
            Durations(
                total=ended - ticket.arrived,
                queue=started - ticket.queued,
                compute_input=timing.compute_input + ticket.encoding_ns,
                compute_infer=timing.compute_infer,
                compute_output=timing.compute_output,
            )
            for ticket in good
        ]
        if good:
            self._statistics.executed(sum(ticket.rows.count for ticket in good), durations)
        for ticket, values, error in zip(batch, scores, wrong, strict=True):
            if error:
                self._fail(ticket, error)
                continue
            ticket.scores = values
            ticket.done(ticket)

    def _fail(self, ticket: Ticket, error: RequestError) -> None:
        self._statistics.failed(error.reason, time.perf_counter_ns() - ticket.arrived)
        ticket.error = error
        ticket.done(ticket)


def _not_finite(scores: np.ndarray) -> RequestError | None:
    """The error of a request that the model gave a NaN or an infinity."""
    finite = np.isfinite(scores)
    if finite.all():
        return None
    row = int(np.argwhere(~finite)[0][0])
    return RequestError(f"score of row {row} is not finite: the model gave {scores[row].tolist()}", 500, "BACKEND")


class _Deadlines:
    """Calls `expire(ticket)` when a waiting ticket's time has come; its thread starts with the first deadline."""

    def __init__(self, name: str, expire: Callable[[Ticket], None]) -> None:
        self._name, self._expire = name, expire
        self._heap: list[tuple[int, int, Ticket]] = []
        self._order = count()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def add(self, ticket: Ticket) -> None:
        with self._changed:
            heapq.heappush(self._heap, (ticket.expires, next(self._order), ticket))
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread:
            self._thread.join()

    def _watch(self) -> None:
        while True:
            with self._changed:
                while not self._stopping and not self._due():
                    left = (self._heap[0][0] - time.perf_counter_ns()) / 1e9 if self._heap else None
                    self._changed.wait(left)
                if self._stopping:
                    return
                ticket = heapq.heappop(self._heap)[2]
            self._expire(ticket)

    def _due(self) -> bool:
        while self._heap and not self._heap[0][2].waiting:  # answered in the meantime
            heapq.heappop(self._heap)
        return bool(self._heap) and self._heap[0][0] <= time.perf_counter_ns()
