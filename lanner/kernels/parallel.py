"""One thread pool for all CPU kernels: `nogil` functions over a range, split among its threads.

Small calls stay on the caller's thread. Idle threads sleep (they never spin), so a server's I/O threads and
PyTorch's own pool keep the cores. Numba's `prange` is not used: its default layer aborts the process when two
threads enter it at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any


def threads() -> int:
    """Number of kernel threads: `LANNER_THREADS`, or this process's share of the CPUs it may run on.

    `torchrun` says in `LOCAL_WORLD_SIZE` how many processes share them.
    """
    if given := _positive("LANNER_THREADS"):
        return given
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(cpus // (_positive("LOCAL_WORLD_SIZE") or 1), 1)


def _positive(variable: str) -> int | None:
    """The positive whole number that an environment variable holds; None where it holds none."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() and int(text) > 0 else None


_own = threading.local()


def stay_on_thread() -> None:
    """What the calling thread asks to `run` stays on it from now on: for threads among which work is shared already."""
    _own.stays = True


@lru_cache(maxsize=1)
def _pool(_process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(threads() - 1, 1), thread_name_prefix="lanner-kernel")


def run(kernel: Callable[..., Any], count: int, *args: Any, grain: int = 1, pieces_per_thread: int = 2) -> None:
    """Call `kernel(begin, end, *args)` over 0..count split into ranges; returns when all are done.

    `grain` is the least work worth a thread of its own: fewer than two grains run on the caller's thread. The
    caller's thread takes its share. The first error of any range is raised, after the others have ended.
    """
    if count < 2 * grain:  # asked first: counting the threads costs more than a small kernel
        if count:
            kernel(0, count, *args)
        return
    workers = 1 if hasattr(_own, "stays") else threads()
    pieces = min(workers * pieces_per_thread, count // max(grain, 1))
    if workers == 1 or pieces < 2:
        kernel(0, count, *args)
        return
    bounds = [count * k // pieces for k in range(pieces + 1)]
    run_all([partial(kernel, bounds[k], bounds[k + 1], *args) for k in range(pieces)])


def run_all(calls: list[Callable[[], Any]]) -> None:
    """Run `calls` on the pool and on the caller's thread; raise the first error once all have ended."""
    if len(calls) == 1 or threads() == 1:
        for call in calls:
            call()
        return
    remaining = iter(calls)  # next() on a list iterator is atomic under the GIL

    def drain() -> None:
        for call in remaining:
            call()

    helpers = [_pool(os.getpid()).submit(drain) for _ in range(min(threads(), len(calls)) - 1)]
    errors: list[BaseException] = []
    try:
        drain()
    except BaseException as error:
        errors.append(error)
    for helper in helpers:
        if helper.cancel():
            continue
        if failure := helper.exception():
            errors.append(failure)
    if errors:
        raise errors[0]
