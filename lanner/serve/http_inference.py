"""One inference request over HTTP, from its body to its answer."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from lanner.serve import http_codec
from lanner.serve.batcher import Ticket
from lanner.serve.compression import pack, unpack
from lanner.serve.control import Loaded
from lanner.serve.failure import RequestError, as_request_error
from lanner.serve.http_protocol import JSON_HEADER, Exchange
from lanner.serve.request import Request, Scores
from lanner.serve.service import Service


class Inference:
    """`start` may run on any thread; the answer is written on the event loop's."""

    __slots__ = ("_arrived", "_exchange", "_limit", "_loop", "_model", "_service", "_version")

    def __init__(
        self, service: Service, exchange: Exchange, model: str, version: str, loop: asyncio.AbstractEventLoop,
        limit: int,
    ) -> None:  # fmt: skip
        self._service, self._exchange, self._loop, self._limit = service, exchange, loop, limit
        self._model, self._version = model, version
        self._arrived = time.perf_counter_ns()

    def start(self) -> None:
        """Read the body, encode it and queue it; what is wrong with it is answered at once."""
        try:
            request = self._read()
            loaded, ticket = self._service.submit(request, self._arrived, lambda ticket: self._done(request, ticket))
        except Exception as error:  # a fault of ours must cost one answer, not the connection
            self._later(self._exchange.fail, as_request_error(error))
        else:
            self._later(self._watch, loaded, ticket)

    def _read(self) -> Request:
        headers = self._exchange.headers
        try:
            body = unpack(self._exchange.body, headers.get("content-encoding", ""), self._limit)
            length = headers.get("inference-header-content-length")
            return http_codec.read(self._model, self._version, body, length)
        except RequestError:
            self._service.malformed(self._model, self._version, self._arrived)
            raise

    def _watch(self, loaded: Loaded, ticket: Ticket) -> None:
        """Cancel the ticket when the client goes away before it is answered."""
        self._exchange.on_abandon = lambda: loaded.batcher.cancel(ticket)
        if self._exchange.abandoned:
            loaded.batcher.cancel(ticket)

    def _done(self, request: Request, ticket: Ticket) -> None:
        self._later(self._answer, request, ticket)

    def _later(self, call: object, *args: object) -> None:
        with suppress(RuntimeError):  # the loop has closed: nobody is left to be answered
            self._loop.call_soon_threadsafe(call, *args)  # type: ignore[arg-type]

    def _answer(self, request: Request, ticket: Ticket) -> None:
        exchange = self._exchange
        if exchange.abandoned:
            return
        if ticket.error:
            exchange.fail(ticket.error)
            return
        assert ticket.scores is not None
        parts, length = http_codec.write(request, Scores(ticket.version, ticket.scores))
        headers = JSON_HEADER
        if length is not None:
            headers = b"Content-Type: application/octet-stream\r\n%b: %d\r\n" % (
                http_codec.LENGTH_HEADER.encode(),
                length,
            )
        if accepted := exchange.headers.get("accept-encoding"):
            packed, encoding = pack(b"".join(parts), accepted)
            if encoding:
                parts, headers = [packed], headers + b"Content-Encoding: %b\r\n" % encoding.encode()
        exchange.respond(200, parts, headers)
