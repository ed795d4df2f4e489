"""`map_ordered`: work on a stream in parallel, results in order, in bounded memory."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from lanner.kernels.parallel import stay_on_thread, threads

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ordered(function: Callable[[Item], Result], items: Iterable[Item], ahead: int = 1) -> Iterator[Result]:
    """Yield `function(item)` for each item, in order.

    `items` is drawn on a thread of its own (reading, decompressing), `function` runs on `threads()` others, and at
    most `threads() + ahead` items are underway. An error of `items` or `function` is raised in its place, after the
    results before it. A generator given as `items` is closed with the results. With one thread everything runs on the
    caller's.
    """
    try:
        if threads() == 1:
            yield from map(function, items)
        else:
            yield from _map_threaded(function, items, ahead)
    finally:
        if isinstance(items, Generator):
            items.close()


def _map_threaded(function: Callable[[Item], Result], items: Iterable[Item], ahead: int) -> Iterator[Result]:
    underway: queue.Queue[Future[Result] | None] = queue.Queue(threads() + ahead - 1)
    stop = threading.Event()
    with ThreadPoolExecutor(threads(), "lanner-prep", initializer=stay_on_thread) as pool:
        feeder = threading.Thread(target=_feed, args=(function, items, pool, underway, stop), name="lanner-feed")
        feeder.start()
        try:
            while (future := underway.get()) is not None:
                yield future.result()
        finally:
            stop.set()
            feeder.join()
            pool.shutdown(cancel_futures=True)


def _feed(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    pool: ThreadPoolExecutor,
    underway: queue.Queue[Future[Result] | None],
    stop: threading.Event,
) -> None:
    try:
        for item in items:
            if not _put(underway, pool.submit(function, item), stop):
                return
    except BaseException as error:  # handed to the consumer, who raises it
        failed: Future[Result] = Future()
        failed.set_exception(error)
        _put(underway, failed, stop)
    else:
        _put(underway, None, stop)


def _put(underway: queue.Queue[Future[Result] | None], future: Future[Result] | None, stop: threading.Event) -> bool:
    """Put when there is room; False once the consumer has stopped."""
    while not stop.is_set():
        try:
            underway.put(future, timeout=0.1)
        except queue.Full:
            continue
        return True
    return False
