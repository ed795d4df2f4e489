"""One inference request on its way from a front end to a model and back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any

from lanner.serve.batcher import Ticket
from lanner.serve.control import Loaded
from lanner.serve.failure import RequestError
from lanner.serve.request import Request, Scores
from lanner.serve.service import Service


class Inference:
    """Reads a request by `read`, has it run, and calls `answer(request, scores)` or `fail(error)` once.

    Both are called on the event loop's thread, which also creates, starts and cancels inferences. `model` and
    `version` say whose failure it is when the request cannot even be read.
    """

    __slots__ = (
        "_answer",
        "_arrived",
        "_cancelled",
        "_fail",
        "_loaded",
        "_loop",
        "_name",
        "_read",
        "_service",
        "_ticket",
    )

    def __init__(
        self, service: Service, loop: asyncio.AbstractEventLoop, name: tuple[str, str], read: Callable[[], Request],
        answer: Callable[[Request, Scores], None], fail: Callable[[RequestError], None],
    ) -> None:  # fmt: skip
        self._service, self._loop, self._name = service, loop, name
        self._read, self._answer, self._fail = read, answer, fail
        self._arrived = time.perf_counter_ns()
        self._cancelled = False
        self._loaded: Loaded | None = None
        self._ticket: Ticket | None = None

    def start(self, executor: Executor | None = None) -> None:
        """Read and queue the request: here, or on `executor` where that may take long."""
        if executor is None:
            self._finish_start(self._submit())
        else:
            executor.submit(lambda: self._later(self._finish_start, self._submit()))

    def cancel(self) -> None:
        """The client has gone: drop the request if it has not started."""
        self._cancelled = True
        if self._loaded and self._ticket:
            self._loaded.batcher.cancel(self._ticket)

    def _submit(self) -> RequestError | tuple[Loaded, Ticket]:
        try:
            try:
                request = self._read()
            except RequestError:
                self._service.malformed(*self._name, self._arrived)
                raise
            return self._service.submit(request, self._arrived, lambda ticket: self._later(self._done, request, ticket))
        except RequestError as error:
            return error
        except Exception as error:  # a fault of ours must cost one answer, not the connection
            return RequestError(f"internal error: {type(error).__name__}: {error}", 500)

    def _finish_start(self, submitted: RequestError | tuple[Loaded, Ticket]) -> None:
        if isinstance(submitted, RequestError):
            self._fail(submitted)
            return
        self._loaded, self._ticket = submitted
        if self._cancelled:
            self.cancel()

    def _done(self, request: Request, ticket: Ticket) -> None:
        if ticket.error:
            self._fail(ticket.error)
            return
        assert ticket.scores is not None
        self._answer(request, Scores(ticket.version, ticket.scores))

    def _later(self, call: Callable[..., None], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop has closed: nobody is left to be answered
            self._loop.call_soon_threadsafe(call, *args)
