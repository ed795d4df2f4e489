"""Batching, limits, time-outs and isolation, with a model that the tests hold by the hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import Queue

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.serve.batcher import Batcher, Policy, Ticket, Timing
from lanner.serve.failure import RequestError
from lanner.serve.rows import Rows
from lanner.serve.statistics import Statistics


def rows(values: Sequence[float]) -> Rows:
    dense = np.array(values, dtype=np.float32)[:, None]
    return Rows(len(values), dense, np.empty((len(values), 0), dtype=np.int64))


class Model:
    """Scores are ten times the dense values; a NaN fails. While `held`, executions wait."""

    def __init__(self, held: bool = False) -> None:
        self.go, self.entered = threading.Event(), Queue[int]()
        self.batches: list[list[int]] = []
        if not held:
            self.go.set()

    def __call__(self, requests: Sequence[Rows]) -> tuple[list[np.ndarray], Timing]:
        self.entered.put(len(requests))
        self.go.wait(30)
        if any(np.isnan(r.dense).any() for r in requests):
            raise ValueError("not a number")
        self.batches.append([r.count for r in requests])
        with np.errstate(over="ignore"):
            return [r.dense * 10 for r in requests], Timing(1, 2, 3)


class Client:
    """Submits requests to a batcher and collects what becomes of them."""

    def __init__(self, policy: Policy, model: Callable[..., object], instances: int = 1) -> None:
        self.statistics = Statistics()
        self.batcher = Batcher("m", policy, [model] * instances, self.statistics)

    def send(self, values: Sequence[float], timeout_us: int = 0) -> Pending:
        pending = Pending(self.batcher)
        pending.ticket = Ticket(rows(values), pending.done, time.perf_counter_ns(), timeout_us=timeout_us)
        self.batcher.submit(pending.ticket)
        return pending


class Pending:
    def __init__(self, batcher: Batcher) -> None:
        self._answered = threading.Event()
        self.batcher = batcher
        self.ticket: Ticket
        self.answers = 0

    def done(self, _ticket: Ticket) -> None:
        self.answers += 1
        self._answered.set()

    def scores(self) -> np.ndarray:
        assert self._answered.wait(30)
        if self.ticket.error:
            raise self.ticket.error
        assert self.ticket.scores is not None
        return self.ticket.scores[:, 0]


def test_requests_queued_behind_an_execution_are_merged_up_to_the_limit() -> None:
    model = Model(held=True)
    client = Client(Policy(max_rows=4), model)
    first = client.send([0])
    model.entered.get(timeout=30)
    later = [client.send([k] * size) for k, size in enumerate((2, 2, 1, 3, 4, 1), start=1)]
    model.go.set()
    assert first.scores().tolist() == [0]
    for k, pending in enumerate(later, start=1):
        assert set(pending.scores().tolist()) == {10 * k}
    assert model.batches == [[1], [2, 2], [1, 3], [4], [1]]


def test_static_policy_runs_each_request_by_itself() -> None:
    model = Model(held=True)
    client = Client(Policy(max_rows=8, dynamic=False), model)
    sent = [client.send([k]) for k in range(4)]
    model.go.set()
    assert [p.scores()[0] for p in sent] == [0, 10, 20, 30]
    assert model.batches == [[1]] * 4


def test_a_preferred_size_runs_at_once_and_other_sizes_wait_for_the_delay() -> None:
    model = Model()
    client = Client(Policy(max_rows=8, preferred=(4, 6), max_delay_ns=60_000_000_000), model)
    sent = [client.send([1, 1]), client.send([2, 2])]
    assert [p.scores()[0] for p in sent] == [10, 20]  # long before the minute is over
    assert model.batches == [[2, 2]]
    lonely = client.send([3])
    time.sleep(0.02)
    assert client.batcher.waiting == 1
    client.batcher.stop()
    assert lonely.scores()[0] == 30


def test_the_delay_is_kept() -> None:
    client = Client(Policy(max_rows=8, max_delay_ns=50_000_000), Model())
    begun = time.perf_counter()
    sent = [client.send([1]), client.send([2])]
    assert [p.scores()[0] for p in sent] == [10, 20]
    assert time.perf_counter() - begun >= 0.05
    assert client.statistics.snapshot("m", "1")["execution_count"] == 1


def test_the_largest_preferred_size_is_never_exceeded_by_merging() -> None:
    model = Model(held=True)
    client = Client(Policy(max_rows=100, preferred=(2, 5)), model)
    blocker = client.send([0])
    model.entered.get(timeout=30)
    sent = [client.send([1] * size) for size in (1, 1, 1, 1, 2, 50)]
    model.go.set()
    for pending in (blocker, *sent):
        pending.scores()
    assert model.batches == [[1], [1, 1], [1, 1], [2], [50]]


def test_a_full_queue_refuses_and_running_requests_do_not_count() -> None:
    model = Model(held=True)
    client = Client(Policy(max_rows=1, max_queue=2), model)
    accepted = [client.send([1])]
    model.entered.get(timeout=30)
    refused = 0
    for k in range(5):
        try:
            accepted.append(client.send([k]))
        except RequestError as error:
            refused += 1
            assert error.status == 503
            assert "maximum queue size" in error.message
    assert (len(accepted), refused) == (3, 3)
    model.go.set()
    assert len([p.scores() for p in accepted]) == 3


def test_a_waiting_request_times_out_on_time_and_never_runs() -> None:
    model = Model(held=True)
    client = Client(Policy(max_rows=1), model)
    running = client.send([1], timeout_us=20_000)
    model.entered.get(timeout=30)
    begun = time.perf_counter()
    waiting = client.send([2], timeout_us=100_000)
    with pytest.raises(RequestError, match="timeout expired") as error:
        waiting.scores()
    assert error.value.status == 503
    assert 0.1 <= time.perf_counter() - begun < 1.5
    model.go.set()
    assert running.scores()[0] == 10  # it had started, so its time-out no longer counts
    client.batcher.stop()
    assert model.batches == [[1]]
    assert client.statistics.failures()["REJECTED"] == 1


def test_the_models_default_time_out_bounds_the_requests_own() -> None:
    model = Model(held=True)
    client = Client(Policy(max_rows=1, timeout_us=50_000), model)
    running = client.send([1])
    model.entered.get(timeout=30)
    for asked in (0, 60_000_000):
        with pytest.raises(RequestError, match="timeout expired"):
            client.send([2], timeout_us=asked).scores()
    model.go.set()
    assert running.scores()[0] == 10


def test_a_cancelled_request_never_runs() -> None:
    model = Model(held=True)
    client = Client(Policy(max_rows=1), model)
    running = client.send([1])
    model.entered.get(timeout=30)
    waiting = client.send([2])
    client.batcher.cancel(waiting.ticket)
    with pytest.raises(RequestError, match="cancelled"):
        waiting.scores()
    client.batcher.cancel(running.ticket)  # too late: it has started
    model.go.set()
    assert running.scores()[0] == 10
    client.batcher.stop()
    assert model.batches == [[1]]
    assert client.statistics.failures()["CANCELED"] == 1
    assert client.batcher.waiting == 0


def test_a_failing_request_leaves_its_neighbours_alone() -> None:
    model = Model(held=True)
    client = Client(Policy(max_rows=10), model)
    client.send([0])
    model.entered.get(timeout=30)
    good, bad, other = client.send([1, 2]), client.send([np.nan]), client.send([3])
    model.go.set()
    assert good.scores().tolist() == [10, 20]
    assert other.scores().tolist() == [30]
    with pytest.raises(RequestError, match="not a number") as error:
        bad.scores()
    assert error.value.status == 500
    assert client.statistics.failures()["BACKEND"] == 1
    assert client.send([4]).scores()[0] == 40


def test_a_score_that_is_not_finite_fails_its_own_request_only() -> None:
    model = Model(held=True)
    client = Client(Policy(max_rows=10), model)
    client.send([0])
    model.entered.get(timeout=30)
    good, bad, other = client.send([1, 2]), client.send([1, 3e38, 3e38]), client.send([3])
    model.go.set()
    assert good.scores().tolist() == [10, 20]
    assert other.scores().tolist() == [30]
    with pytest.raises(RequestError, match="score of row 1 is not finite") as error:
        bad.scores()
    assert error.value.status == 500
    assert [model.batches[1], len(model.batches)] == [[2, 3, 1], 2]
    assert client.statistics.failures()["BACKEND"] == 1
    assert client.statistics.snapshot("m", "1")["inference_count"] == 4
    with pytest.raises(RequestError, match="score of row 0 is not finite"):
        client.send([3e38]).scores()
    assert client.send([4]).scores()[0] == 40


def test_a_request_larger_than_a_batch_is_refused() -> None:
    client = Client(Policy(max_rows=3), Model())
    with pytest.raises(RequestError, match="batch-size must be <= 3"):
        client.send([1] * 4)


def test_stop_answers_what_is_queued_and_refuses_what_comes_later() -> None:
    model = Model(held=True)
    client = Client(Policy(max_rows=1), model)
    sent = [client.send([k]) for k in range(3)]
    model.go.set()
    client.batcher.stop()
    assert [p.scores()[0] for p in sent] == [0, 10, 20]
    with pytest.raises(RequestError) as error:
        client.send([1])
    assert error.value.status == 503


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=30),
    preferred=st.sets(st.integers(1, 7), max_size=2),
    delay_us=st.sampled_from([0, 200]),
    instances=st.integers(1, 3),
)
def test_every_request_gets_its_own_scores(
    sizes: list[int], preferred: set[int], delay_us: int, instances: int
) -> None:
    model = Model()
    policy = Policy(max_rows=7, preferred=tuple(preferred), max_delay_ns=delay_us * 1000)
    client = Client(policy, model, instances)
    sent = [client.send([k * 10 + place for place in range(size)]) for k, size in enumerate(sizes)]
    for k, (size, pending) in enumerate(zip(sizes, sent, strict=True)):
        assert pending.scores().tolist() == [100 * k + 10 * place for place in range(size)]
        assert pending.answers == 1
    client.batcher.stop()
    assert max(map(sum, model.batches)) <= 7
    limit = max(preferred, default=7)
    assert all(len(batch) == 1 or sum(batch) <= limit for batch in model.batches)
    seen = client.statistics.snapshot("m", "1")
    assert seen["inference_count"] == sum(sizes)
    assert seen["execution_count"] == len(model.batches)
    stages = ("success", "queue", "compute_input", "compute_infer", "compute_output")
    assert {seen["inference_stats"][stage]["count"] for stage in stages} == {len(sizes)}
    assert sum(batch["batch_size"] * batch["compute_infer"]["count"] for batch in seen["batch_stats"]) == sum(sizes)
