"""HTTP/1.1 on asyncio: parses with httptools, answers each request with a single write, in order."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

import httptools
import orjson

from lanner.serve.compression import too_large
from lanner.serve.failure import RequestError

_REASONS = {
    100: "Continue", 200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 499: "Client Closed Request", 500: "Internal Server Error", 501: "Not Implemented",
    503: "Service Unavailable",
}  # fmt: skip
_STATUS_LINES = {code: f"HTTP/1.1 {code} {reason}\r\n".encode() for code, reason in _REASONS.items()}
JSON_HEADER = b"Content-Type: application/json\r\n"
_MOST_PENDING = 64
"""Pipelined requests of one connection that are read ahead of their answers."""
_MOST_HEADERS = 64 << 10
HEAD_SECONDS = 30.0
"""Seconds in which a request's head must arrive; an idle connection that has sent a request before may stay."""
LINGER_SECONDS = 5.0
"""Seconds for which the rest of a refused request is still read, so that its sender gets to read why."""


class Exchange:
    """One request and its answer. `abandoned` is set when the client has gone.

    `extra_headers` are complete header lines that any answer gets.
    """

    __slots__ = (
        "_connection",
        "_parts",
        "abandoned",
        "body",
        "extra_headers",
        "headers",
        "keep_alive",
        "method",
        "on_abandon",
        "path",
    )

    def __init__(self, connection: Connection, path: str) -> None:
        self._connection = connection
        self.path = path
        self.method = ""
        self.headers: dict[str, str] = {}
        self.body = b""
        self.keep_alive = True
        self.abandoned = False
        self.on_abandon: Callable[[], None] | None = None
        self.extra_headers = b""
        self._parts: tuple[bytes, bytes] | None = None

    @property
    def answered(self) -> bool:
        return self._parts is not None

    def respond(self, status: int, body: Iterable[bytes] = (), headers: bytes = b"") -> None:
        """Answer (event loop thread only). `headers` are complete header lines."""
        parts = tuple(body)
        headers += self.extra_headers
        head = b"%b%bContent-Length: %d\r\n" % (_STATUS_LINES[status], headers, sum(map(len, parts)))
        self._parts = head, b"" if self.method == "HEAD" else b"".join(parts)
        self._connection.flush()

    def wire(self) -> bytes:
        """The answer as it is sent."""
        assert self._parts is not None
        return (b"\r\n" if self.keep_alive else b"Connection: close\r\n\r\n").join(self._parts)

    def respond_json(self, value: Any, status: int = 200) -> None:
        self.respond(status, (orjson.dumps(value),), JSON_HEADER)

    def fail(self, error: RequestError) -> None:
        """Answer with an error in the protocol's form."""
        self.respond_json({"error": error.message}, error.status)


class Connection(asyncio.Protocol):
    """One client connection; calls `handle(exchange)` for each complete request."""

    def __init__(
        self, handle: Callable[[Exchange], None], connections: set[Connection], limit: int,
        stopping: Callable[[], bool] = lambda: False, head_seconds: float = HEAD_SECONDS,
    ) -> None:  # fmt: skip
        self._handle, self._connections, self._limit = handle, connections, limit
        self._stopping, self._head_seconds = stopping, head_seconds
        self._parser = httptools.HttpRequestParser(self)
        self._pending: deque[Exchange] = deque()
        self._closing = self._refused = self._reading = self._in_head = False
        self._timer: asyncio.TimerHandle | None = None
        self._current: Exchange | None = None
        self._reset()

    @property
    def idle(self) -> bool:
        """True when no request is being read or answered."""
        return not self._pending and self._current is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._connections.add(self)
        if (sock := transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._set_timer(self._head_seconds, self._head_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._closing = True
        self._stop_timer()
        for exchange in self._pending:
            exchange.abandoned = True
            if exchange.on_abandon:
                exchange.on_abandon()
        self._pending.clear()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._reading = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._closing = True  # answered as plain HTTP/1.1; whatever protocol follows is not spoken here
        except httptools.HttpParserError as error:
            self._refuse(RequestError(f"malformed HTTP request: {error}"))
        finally:
            self._reading = False
        if self._pending:
            self.flush()
        if self._in_head and self._timer is None:
            self._set_timer(self._head_seconds, self._head_late)

    def eof_received(self) -> bool:
        """The client sends no more; what it has sent is answered before the connection closes."""
        self._closing = True
        return bool(self._pending)

    def close(self) -> None:
        """Close once everything received has been answered."""
        self._closing = True
        if not self._pending:
            self._transport.close()

    def flush(self) -> None:
        """Send the answers that are complete, in the order of their requests."""
        if self._reading and self._stopping():
            return  # once all that has arrived is parsed, it is known which answer is the last
        while self._pending and self._pending[0].answered:
            exchange = self._pending.popleft()
            last = not self._pending and (self._closing or (self._stopping() and self._current is None))
            exchange.keep_alive = exchange.keep_alive and not last
            self._transport.write(exchange.wire())
            if not exchange.keep_alive:
                self._closing = True
                self._end()
                return
        if len(self._pending) < _MOST_PENDING and not self._closing:
            self._transport.resume_reading()

    def _end(self) -> None:
        """Close; after a refusal only when its sender has stopped, since unread bytes would cost it the answer."""
        if not self._refused:
            self._transport.close()
            return
        self._transport.write_eof()
        self._transport.resume_reading()
        self._set_timer(LINGER_SECONDS, self._transport.close)

    def _set_timer(self, seconds: float, call: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, call)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = None

    def _head_late(self) -> None:
        """The head of a request has not arrived in time: say so, unless nothing of it has."""
        self._timer = None
        if self._in_head:
            self._refuse(RequestError(f"the request's head did not arrive within {self._head_seconds:g} seconds", 408))
        else:
            self.close()

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self._reset()
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > _MOST_HEADERS:
            self._refuse(RequestError(f"the request's headers exceed {_MOST_HEADERS} bytes"))
            return
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._closing:
            return
        self._in_head = False
        self._stop_timer()
        exchange = self._current = Exchange(self, self._url.decode("latin-1"))
        exchange.headers = self._headers
        exchange.method = self._parser.get_method().decode("latin-1")
        exchange.keep_alive = self._parser.should_keep_alive()
        length = self._headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._limit:
            self._refuse(too_large(self._limit))
        elif self._headers.get("expect", "").lower() == "100-continue":
            self._transport.write(_STATUS_LINES[100] + b"\r\n")

    def on_body(self, body: bytes) -> None:
        if self._closing:
            return
        self._size += len(body)
        if self._size > self._limit:
            self._refuse(too_large(self._limit))
            return
        self._body.append(body)

    def on_message_complete(self) -> None:
        exchange = self._current
        if exchange is None or self._closing:
            return
        self._current = None
        exchange.body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._pending.append(exchange)
        if len(self._pending) >= _MOST_PENDING:
            self._transport.pause_reading()
        self._handle(exchange)

    def _reset(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._header_bytes = self._size = 0
        self._body: list[bytes] = []
        self._current = None

    def _refuse(self, error: RequestError) -> None:
        """Answer what cannot be read further with an error, then close."""
        if self._closing:
            return
        exchange = self._current or Exchange(self, "")
        exchange.keep_alive = False
        self._current = None
        self._pending.append(exchange)
        self._closing = self._refused = True
        exchange.fail(error)
