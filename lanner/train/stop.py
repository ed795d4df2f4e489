"""Stopping on Ctrl-C or SIGTERM between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether a signal asked the run to stop."""

    requested = False


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """While the block runs, the first SIGINT or SIGTERM only sets `requested`; a second one acts as usual.

    Signals reach only a process's main thread; elsewhere nothing is changed.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(_number: int, _frame: FrameType | None) -> None:
        request.requested = True
        for number, handler in previous.items():
            signal.signal(number, handler)

    for number in previous:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
