"""The server process: front ends, readiness and a graceful end."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from typing import Literal, Protocol, TypeAlias

from lanner import storage
from lanner.serve import grpc_front, metrics
from lanner.serve.control import Control
from lanner.serve.failure import RequestError
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
    directory or has no models (a server that loads on request may begin without), and OSError for a port that is taken.
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
    control.check()
    service = Service(control, options.name)
    async with AsyncExitStack() as stack:
        stack.callback(control.stop)
        http = await _listen(stack, Application(service, loop, options.http_limit), options, "HTTP", stopped.is_set)
        pages = await _listen(stack, MetricsPage(control), options, "metrics", stopped.is_set)
        rpc = await _listen_grpc(stack, service, options)
        await asyncio.to_thread(control.start)
        service.ready = True
        ports = Ports(http, rpc, pages)
        if options.ready_file:
            storage.write_text(options.ready_file, json.dumps(asdict(ports)) + "\n")
        if on_ready:
            on_ready(ports, service)
        await stopped.wait()
        service.stop()


class Handles(Protocol):
    """Something that answers HTTP requests."""

    def handle(self, exchange: Exchange) -> None: ...

    def close(self) -> None: ...


class MetricsPage:
    """Answers on the metrics port."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def handle(self, exchange: Exchange) -> None:
        if exchange.path.partition("?")[0] == "/metrics":
            exchange.respond(200, (metrics.render(self._control),), metrics.CONTENT_TYPE)
        else:
            exchange.fail(RequestError(f"{exchange.path}: no such page; the metrics are at /metrics", 404))

    def close(self) -> None:
        pass


Use: TypeAlias = Literal["HTTP", "gRPC", "metrics"]


async def _bind(factory: Callable[[], asyncio.Protocol], options: Options, use: Use) -> asyncio.Server:
    """Listen on the port meant for `use`; raises OSError that says which option chooses another one."""
    port = int(getattr(options, f"{use.lower()}_port"))
    try:
        return await asyncio.get_running_loop().create_server(factory, options.host, port, backlog=1024)
    except OSError as error:
        option = f"--{use.lower()}-port"
        if error.errno == errno.EADDRINUSE:
            raise OSError(f"port {port} ({use}) is in use; choose another with {option}") from error
        why = error.strerror or error
        raise OSError(f"cannot listen on {options.host}:{port} ({use}; --host, {option}): {why}") from error


async def _listen(
    stack: AsyncExitStack, handler: Handles, options: Options, use: Use, stopping: Callable[[], bool]
) -> int:
    """Accept HTTP connections for `handler` until the stack unwinds, which first lets them finish."""
    connections: set[Connection] = set()
    listener = await _bind(lambda: Connection(handler.handle, connections, options.http_limit, stopping), options, use)

    async def finish() -> None:
        listener.close()
        await _drain(connections, options.exit_timeout)
        handler.close()

    stack.push_async_callback(finish)
    return int(listener.sockets[0].getsockname()[1])


async def _drain(connections: set[Connection], seconds: float) -> None:
    """Wait until every connection has answered what it received, then close it."""
    end = asyncio.get_running_loop().time() + seconds
    await asyncio.sleep(0.01)  # what has arrived is read first
    while connections and asyncio.get_running_loop().time() < end:
        for connection in list(connections):
            if connection.idle:
                connection.close()
        await asyncio.sleep(0.01)


async def _listen_grpc(stack: AsyncExitStack, service: Service, options: Options) -> int:
    if options.grpc_port:  # gRPC itself does not say why it cannot listen
        (await _bind(asyncio.Protocol, options, "gRPC")).close()
    server, port = grpc_front.start(service, f"{options.host}:{options.grpc_port}")
    stack.push_async_callback(asyncio.to_thread, lambda: server.stop(options.exit_timeout).wait())
    return port
