"""HTTP client of the load generator: raw asyncio connections kept alive, one for each request under way."""

from __future__ import annotations

import asyncio
import concurrent.futures
import http.client
import json
import threading
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlsplit

from lanner.errors import ConfigError
from lanner.perf.client import CALL_SECONDS, Done, Sample, ServerError, clock
from lanner.perf.http_reader import ResponseReader
from lanner.perf.requests import infer_path

SWEEP_SECONDS = 0.25
"""How often connections are searched for requests past their time limit."""

RETRY_SECONDS = 0.05
"""A failed connection is reported this late, so that a closed loop does not spin on a server that is down."""


class HttpClient:
    """See `lanner.perf.client.Client`. The event loop runs in a thread of its own."""

    def __init__(self, url: str, name: str, version: str, timeout: float) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname or not parts.port:
            raise ConfigError(f"--url {url!r}: expected HOST:PORT")
        self._host, self._port = parts.hostname, parts.port
        self._model = infer_path(name, version)
        self._timeout = timeout
        self._idle: list[_Connection] = []
        self._all: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lanner-perf-http", daemon=True)
        self._thread.start()
        self._loop.call_soon_threadsafe(self._sweep)

    def server(self) -> dict[str, Any]:
        return self._call("/v2") or {}

    def metadata(self) -> dict[str, Any]:
        answer = self._call(self._model)
        if answer is None:
            raise ServerError(f"http://{self._host}:{self._port}{self._model}: no such model")
        return answer

    def config(self) -> dict[str, Any] | None:
        return self._call(f"{self._model}/config")

    def statistics(self) -> dict[str, Any] | None:
        return self._call(f"{self._model}/stats")

    def connect(self, slots: int) -> None:
        async def open_all() -> None:
            await asyncio.gather(*(self._open() for _ in range(slots - len(self._idle))))

        try:
            asyncio.run_coroutine_threadsafe(open_all(), self._loop).result(CALL_SECONDS)
        except (OSError, concurrent.futures.TimeoutError) as error:
            raise ServerError(f"cannot connect to {self._host}:{self._port}: {error}") from error

    def submit(self, request: bytes, planned: float, done: Done) -> None:
        if threading.get_ident() == self._thread.ident:
            self._send(request, planned, done)
        else:
            self._loop.call_soon_threadsafe(self._send, request, planned, done)

    def close(self) -> None:
        def stop() -> None:
            for connection in tuple(self._all):
                connection.abort("the client was closed")
            for task in self._tasks:
                task.cancel()
            self._loop.call_soon(self._loop.stop)

        self._loop.call_soon_threadsafe(stop)
        self._thread.join()
        self._loop.close()

    def release(self, connection: _Connection) -> None:
        """A connection is free for the next request."""
        self._idle.append(connection)

    def lost(self, connection: _Connection) -> None:
        """A connection is gone."""
        self._all.discard(connection)
        with suppress(ValueError):
            self._idle.remove(connection)

    def _call(self, path: str) -> dict[str, Any] | None:
        """GET a JSON document; None for an unknown path (404, 405, 501)."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=CALL_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read()
        except (http.client.HTTPException, ConnectionResetError) as error:
            where = f"http://{self._host}:{self._port}"
            raise ServerError(f"{where}: this does not answer as HTTP/1.1: is it the gRPC port?") from error
        except OSError as error:
            raise ServerError(f"http://{self._host}:{self._port}{path}: {error or type(error).__name__}") from error
        finally:
            connection.close()
        if answer.status == 200:
            return dict(json.loads(text))
        if answer.status in (404, 405, 501):
            return None
        raise ServerError(f"http://{self._host}:{self._port}{path}: {failure(answer.status, text)}")

    def _send(self, request: bytes, planned: float, done: Done) -> None:
        if self._idle:
            self._idle.pop().start(request, planned, done)
            return
        task = self._loop.create_task(self._open_and_send(request, planned, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open_and_send(self, request: bytes, planned: float, done: Done) -> None:
        started = clock()
        try:
            connection = await asyncio.wait_for(self._open(), CALL_SECONDS)
        except (OSError, asyncio.TimeoutError) as error:
            await asyncio.sleep(RETRY_SECONDS)
            now = clock()
            done(Sample(planned, started, now, now, now, f"cannot connect: {error or 'timed out'}"))
            return
        self._idle.remove(connection)
        connection.start(request, planned, done, started)

    async def _open(self) -> _Connection:
        _, connection = await self._loop.create_connection(lambda: _Connection(self), self._host, self._port)
        self._all.add(connection)
        self._idle.append(connection)
        return connection

    def _sweep(self) -> None:
        oldest = clock() - self._timeout
        for connection in tuple(self._all):
            if connection.done is not None and connection.started < oldest:
                connection.abort(f"no answer within {self._timeout:g} s")
        self._loop.call_later(SWEEP_SECONDS, self._sweep)


class _Connection(asyncio.Protocol):
    """One kept-alive connection with at most one request under way."""

    __slots__ = ("_client", "_planned", "_reader", "_sent", "_transport", "done", "first", "started")

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._reader = ResponseReader()
        self._planned = self._sent = self.started = self.first = 0.0
        self.done: Done | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def start(self, request: bytes, planned: float, done: Done, started: float | None = None) -> None:
        """Write the request; `started` is earlier than now where a connection had to be opened for it."""
        self._planned, self.done, self.first = planned, done, 0.0
        self.started = clock() if started is None else started
        self._transport.write(request)
        self._sent = clock()

    def data_received(self, data: bytes) -> None:
        if not self.first:
            self.first = clock()
        try:
            complete = self._reader.feed(data)
        except ValueError as error:
            self.abort(str(error))
            return
        if complete:
            status = self._reader.status
            error_text = "" if status == 200 else failure(status, self._reader.body)
            keep = self._reader.keep_alive
            self._reader.reset()
            self._finish(error_text, keep)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.lost(self)
        self._finish(f"connection lost: {exc or 'closed by the server'}", keep=False)

    def abort(self, reason: str) -> None:
        """Give up the request under way, and the connection with it."""
        self._client.lost(self)
        self._transport.abort()
        self._finish(reason, keep=False)

    def _finish(self, error: str, keep: bool) -> None:
        done, self.done = self.done, None
        if keep:
            self._client.release(self)
        else:
            self._transport.close()
        if done is not None:
            done(Sample(self._planned, self.started, self._sent, self.first or self._sent, clock(), error))


def failure(status: int, body: bytes) -> str:
    """`400: message` from an error answer, whatever its form."""
    try:
        answer = json.loads(body)
        text = answer.get("error") or answer.get("detail") if isinstance(answer, dict) else None
    except ValueError:
        text = None
    return f"{status}: {text or body[:200].decode('latin-1').strip() or 'no message'}"


def _new_loop() -> asyncio.AbstractEventLoop:
    """An event loop of uvloop where it is installed: less client time in the measured latency."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
