"""Which HTTP request calls which operation of the service."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

import orjson

from lanner.serve.failure import RequestError, as_request_error
from lanner.serve.http_codec import decimal
from lanner.serve.http_inference import Inference
from lanner.serve.http_protocol import Exchange
from lanner.serve.service import Service
from lanner.serve.settings import to_json

INLINE = 16 << 10
"""Bytes of a body up to which it is read on the event loop; larger ones, unless binary, are read on other threads."""


_READ = ("GET", "HEAD")


class Application:
    """Answers exchanges. Lives on the event loop's thread; models run elsewhere."""

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self._service, self._loop, self._limit = service, loop, limit
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="lanner-read")

    def close(self) -> None:
        self._readers.shutdown(wait=False)

    def handle(self, exchange: Exchange) -> None:
        """Answer `exchange` now, or have it answered when its model has run."""
        try:
            self._route(exchange)
        except Exception as error:  # a fault of ours must cost one answer, not the connection or the process
            exchange.fail(as_request_error(error))

    def _route(self, exchange: Exchange) -> None:
        path, _, _ = exchange.path.partition("?")
        parts = tuple(unquote(part) for part in path.strip("/").split("/"))
        match parts:
            case ("v2", "models", model, "versions", version, "infer"):
                self._infer(exchange, model, version)
            case ("v2", "models", model, "infer"):
                self._infer(exchange, model, "")
            case ("v2", "models", model, "versions", version, *action):
                self._model(exchange, model, version, action)
            case ("v2", "models", "stats"):
                _allow(exchange, *_READ)
                exchange.respond_json(self._service.statistics())
            case ("v2", "models", model, *action):
                self._model(exchange, model, "", action)
            case ("v2", *rest):
                self._server(exchange, rest)
            case _:
                raise _unknown(exchange)

    def _model(self, exchange: Exchange, model: str, version: str, action: list[str]) -> None:
        match action:
            case []:
                _allow(exchange, *_READ)
                exchange.respond_json(self._service.model_metadata(model, version))
            case ["config"]:
                _allow(exchange, *_READ)
                exchange.respond_json(to_json(self._service.model_config(model, version)))
            case ["stats"]:
                _allow(exchange, *_READ)
                exchange.respond_json(self._service.statistics(model, version))
            case ["ready"]:
                _allow(exchange, *_READ)
                exchange.respond(200 if self._service.model_ready(model, version) else 400)
            case ["trace", "setting"]:
                _allow(exchange, *_READ, "POST")
                exchange.respond_json(self._service.trace)
            case _:
                raise _unknown(exchange)

    def _server(self, exchange: Exchange, rest: list[str]) -> None:
        match rest:
            case []:
                _allow(exchange, *_READ)
                exchange.respond_json(self._service.server_metadata())
            case ["health", "live"]:
                _allow(exchange, *_READ)
                exchange.respond(200)
            case ["health", "ready"]:
                _allow(exchange, *_READ)
                exchange.respond(200 if self._service.ready else 400)
            case ["repository", "index"]:
                _allow(exchange, "POST")
                exchange.respond_json(self._service.index(_body(exchange).get("ready") is True))
            case ["repository", "models", model, "load" | "unload" as operation]:
                _allow(exchange, "POST")
                self._change(exchange, model, operation)
            case ["trace", "setting"]:
                _allow(exchange, *_READ, "POST")
                exchange.respond_json(self._service.trace)
            case ["logging"]:
                _allow(exchange, *_READ, "POST")
                exchange.respond_json(self._service.log)
            case ["systemsharedmemory" | "cudasharedmemory", *operation]:
                changes = operation[-1:] in (["register"], ["unregister"])
                _allow(exchange, *(("POST",) if changes else _READ))
                exchange.respond_json(self._service.shared_memory(operation[-1] if operation else ""))
            case _:
                raise _unknown(exchange)

    def _change(self, exchange: Exchange, model: str, operation: str) -> None:
        """Load or unload a model on another thread: it takes long."""
        change = self._service.load if operation == "load" else self._service.unload

        def answer(future: asyncio.Future[None]) -> None:
            error = future.exception()
            if error is None:
                exchange.respond(200)
            else:
                exchange.fail(error if isinstance(error, RequestError) else RequestError(str(error), 500))

        self._loop.run_in_executor(None, change, model).add_done_callback(answer)

    def _infer(self, exchange: Exchange, model: str, version: str) -> None:
        _allow(exchange, "POST")
        inference = Inference(self._service, exchange, model, version, self._loop, self._limit)
        length = decimal(exchange.headers.get("inference-header-content-length", ""))
        if len(exchange.body) <= INLINE or (length is not None and length <= INLINE // 8):
            inference.start()
        else:
            self._readers.submit(inference.start)


def _allow(exchange: Exchange, *methods: str) -> None:
    """Refuse any other method."""
    if exchange.method not in methods:
        exchange.extra_headers = b"Allow: %b\r\n" % ", ".join(methods).encode()
        raise RequestError(f"{exchange.path} takes {' or '.join(methods)}, not {exchange.method}", 405)


def _unknown(exchange: Exchange) -> RequestError:
    return RequestError(f"{exchange.method} {exchange.path}: no such endpoint", 404)


def _body(exchange: Exchange) -> dict[str, Any]:
    """The JSON object of a control request, whatever its content type; {} when there is none."""
    try:
        value = orjson.loads(exchange.body or b"{}")
    except orjson.JSONDecodeError as error:
        raise RequestError(f"failed to parse the request JSON buffer: {error}") from error
    return value if isinstance(value, dict) else {}
