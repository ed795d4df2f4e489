"""The kernel thread pool: every piece once, errors carried to the caller, safe when nested and after a fork."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lanner.kernels import parallel


@pytest.fixture(params=["1", "2", "5"], autouse=True)
def threads(request, monkeypatch):
    monkeypatch.setenv("LANNER_THREADS", request.param)
    return int(request.param)


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
@pytest.mark.parametrize("grain", [1, 10, 600])
def test_every_number_is_visited_once(count, grain):
    seen = [0] * count

    def kernel(begin, end, step):
        for i in range(begin, end):
            seen[i] += step

    parallel.run(kernel, count, 1, grain=grain)
    assert seen == [1] * count


def test_small_work_stays_on_the_callers_thread():
    used = []
    parallel.run(lambda begin, end: used.append(threading.get_ident()), 15, grain=10)
    assert used == [threading.get_ident()]


def test_a_thread_among_others_that_share_work_keeps_its_own():
    def run():
        used = []
        parallel.run(lambda begin, end: used.append((begin, end, threading.get_ident())), 1000, grain=10)
        return used, threading.get_ident()

    with ThreadPoolExecutor(1, initializer=parallel.stay_on_thread) as pool:
        used, own = pool.submit(run).result()
    assert used == [(0, 1000, own)]


def test_the_first_error_is_raised_after_all_have_ended():
    ended = []

    def kernel(begin, end):
        if begin == 0:
            raise ValueError("piece 0")
        ended.append(begin)

    with pytest.raises(ValueError, match="piece 0"):
        parallel.run(kernel, 100)
    count = len(ended)
    parallel.run(lambda begin, end: None, 100)
    assert len(ended) == count  # nothing of the failed call is still running


def test_nested_calls_end():
    seen = []
    parallel.run(lambda begin, end: parallel.run(lambda b, e: seen.append(e - b), 8), 8)
    assert sum(seen) % 8 == 0 and seen


def test_many_callers_at_once():
    totals = []

    def caller():
        seen = []
        parallel.run(lambda begin, end: seen.append(end - begin), 500)
        totals.append(sum(seen))

    callers = [threading.Thread(target=caller) for _ in range(8)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(30)
    assert totals == [500] * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own():
    parallel.run(lambda begin, end: None, 100)
    child = os.fork()
    if child == 0:
        seen = []
        parallel.run(lambda begin, end: seen.append(end - begin), 100)
        os._exit(0 if sum(seen) == 100 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_processes_of_one_machine_share_its_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANNER_THREADS", raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    alone = parallel.threads()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert parallel.threads() == max(alone // 2, 1)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1000")
    assert parallel.threads() == 1
    monkeypatch.setenv("LANNER_THREADS", "3")
    assert parallel.threads() == 3
