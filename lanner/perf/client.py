"""What both protocols' clients offer the load loops."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from lanner.errors import LannerError
from lanner.perf.settings import Settings

clock = time.perf_counter

CALL_SECONDS = 10.0
"""Time limit of the describing calls, and of connecting."""


class Sample(NamedTuple):
    """One request, in seconds of `clock`: when it was meant to go, when sending began and ended, when the first
    bytes of the answer came and when it was complete. `error` is empty for a good answer."""

    planned: float
    started: float
    sent: float
    first: float
    done: float
    error: str = ""


Done = Callable[[Sample], None]


class ServerError(LannerError):
    """The server did not answer, or refused a call."""


class Client(Protocol):
    """A connection to a server. The describing calls block; `submit` does not, and may be called from any thread."""

    def server(self) -> dict[str, Any]: ...
    def metadata(self) -> dict[str, Any]: ...
    def config(self) -> dict[str, Any] | None:
        """The model's configuration; None when the server has no such call."""

    def statistics(self) -> dict[str, Any] | None:
        """The model's counters; None when the server has no such call."""

    def connect(self, slots: int) -> None:
        """Have `slots` connections ready where the protocol needs one for each request under way."""

    def submit(self, request: bytes, planned: float, done: Done) -> None:
        """Send, and call `done` on a thread of the client once the answer is there or has failed."""

    def close(self) -> None: ...


def open_client(settings: Settings) -> Client:
    """A client for the protocol the settings name."""
    if settings.protocol == "http":
        from lanner.perf.http_client import HttpClient

        return HttpClient(settings.url, settings.name, settings.version, settings.timeout)
    from lanner.perf.grpc_client import GrpcClient

    return GrpcClient(settings.url, settings.name, settings.version, settings.timeout)
