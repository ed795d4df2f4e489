"""The server process: front ends, readiness and a graceful end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Protocol

from lanner import storage
from lanner.serve import metrics
from lanner.serve.control import Control
from lanner.serve.failure import RequestError
from lanner.serve.grpc_calls import Calls
from lanner.serve.http2 import Http2Connection
from lanner.serve.http_protocol import Connection, Exchange
from lanner.serve.http_routes import Application
from lanner.serve.service import Service

HTTP_LIMIT = 64 << 20


@dataclass(frozen=True, slots=True)
class Options:
    """How to serve `repository`. A port of 0 takes any free one; `threads` 0 means all CPUs of the process.

    After a signal to stop, requests in flight have `exit_timeout` seconds.
    """

    repository: str
    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    threads: int = 0
    explicit: bool = False
    name: str = "lanner"
    http_limit: int = HTTP_LIMIT
    exit_timeout: float = 30.0
    ready_file: str | None = None


@dataclass(frozen=True, slots=True)
class Ports:
    http: int
    grpc: int
    metrics: int


def serve(options: Options, on_ready: Callable[[Ports, Service], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then answer what is in flight and return.

    `on_ready` is called once, when the models are loaded and warm. Raises ConfigError for a repository that is no
    directory and OSError for a port that is taken.
    """
    if options.threads:
        os.environ["LANNER_THREADS"] = str(options.threads)
    sys.setswitchinterval(0.001)  # threads that wait for the interpreter get it after 1 ms at most, not 5
    run = asyncio.run
    try:
        import uvloop

        run = uvloop.run
    except ImportError:
        pass
    run(_serve(options, on_ready))


async def _serve(options: Options, on_ready: Callable[[Ports, Service], None] | None) -> None:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    control = Control(options.repository, options.explicit)
    service = Service(control, options.name)
    async with AsyncExitStack() as stack:
        stack.callback(control.stop)
        readers = stack.enter_context(ThreadPoolExecutor(2, thread_name_prefix="lanner-read"))
        app, calls = Application(service, loop, readers, options.http_limit), Calls(service, loop, readers)
        ports = Ports(
            await _listen(stack, options, options.http_port, partial(Connection, app.handle, options.http_limit)),
            await _listen(stack, options, options.grpc_port, partial(Http2Connection, calls)),
            await _listen(stack, options, options.metrics_port, partial(Connection, metrics_page(control), 1 << 16)),
        )
        await asyncio.to_thread(control.start)
        service.ready = True
        if options.ready_file:
            storage.write_text(options.ready_file, json.dumps(asdict(ports)) + "\n")
        if on_ready:
            on_ready(ports, service)
        await stopped.wait()
        service.ready = False


def metrics_page(control: Control) -> Callable[[Exchange], None]:
    """Answers on the metrics port."""

    def handle(exchange: Exchange) -> None:
        if exchange.path.partition("?")[0] == "/metrics":
            exchange.respond(200, (metrics.render(control),), metrics.CONTENT_TYPE)
        else:
            exchange.fail(RequestError(f"{exchange.path}: no such page; the metrics are at /metrics", 404))

    return handle


class Drains(Protocol):
    """A connection as far as the end of the server concerns it."""

    @property
    def idle(self) -> bool: ...

    def close(self) -> None: ...


async def _listen(stack: AsyncExitStack, options: Options, port: int, connect: Callable[..., Any]) -> int:
    """Accept connections, made by `connect(connections)`, until the stack unwinds, which first lets them finish."""
    connections: set[Drains] = set()
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: connect(connections), options.host, port, backlog=1024)

    async def finish() -> None:
        listener.close()
        await _drain(connections, options.exit_timeout)

    stack.push_async_callback(finish)
    return int(listener.sockets[0].getsockname()[1])


async def _drain(connections: set[Drains], seconds: float) -> None:
    """Wait until every connection has answered what it received, then close it."""
    end = asyncio.get_running_loop().time() + seconds
    while connections and asyncio.get_running_loop().time() < end:
        for connection in list(connections):
            if connection.idle:
                connection.close()
        await asyncio.sleep(0.01)
