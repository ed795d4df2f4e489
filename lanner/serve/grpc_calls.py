"""gRPC on HTTP/2: from streams to calls of the protocol's methods, and their answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any
from urllib.parse import quote

from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from lanner.serve import grpc_codec
from lanner.serve.compression import unpack
from lanner.serve.failure import RequestError
from lanner.serve.grpc_methods import METHODS
from lanner.serve.hpack import encode
from lanner.serve.http2 import Stream
from lanner.serve.inference import Inference
from lanner.serve.request import Request, Scores
from lanner.serve.service import Service

INLINE = 64 << 10
"""Bytes of a message up to which it is read on the event loop; larger ones are read on other threads."""

_PREFIX = "/inference.GRPCInferenceService/"
_STATUS_200 = b"\x88"  # an entry of HPACK's static table
_HEAD = _STATUS_200 + encode(
    (b"content-type", b"application/grpc"), (b"grpc-accept-encoding", b"identity,deflate,gzip")
)
_OK = encode((b"grpc-status", b"0"))
_CODES = {400: 3, 404: 5, 499: 1, 500: 13, 501: 12, 503: 14}
"""gRPC status by HTTP status: INVALID_ARGUMENT, NOT_FOUND, CANCELLED, INTERNAL, UNIMPLEMENTED, UNAVAILABLE."""
_LONGEST_TEXT = 4000
_LARGEST = 2**31 - 1


class Calls:
    """Answers streams; lives on the event loop's thread."""

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop, readers: Executor) -> None:
        self._service, self._loop, self._readers = service, loop, readers

    def received(self, stream: Stream) -> None:
        """See `lanner.serve.http2.Handles`."""
        path = stream.headers.get(b":path", b"").decode("latin-1")
        try:
            if path == _PREFIX + "ModelStreamInfer":
                self._streaming(stream)
            elif stream.ended:
                self._unary(stream, path.removeprefix(_PREFIX))
        except RequestError as error:
            _fail(stream, error)
        except Exception as error:  # a fault of ours must cost one call, not the connection
            _fail(stream, RequestError(f"internal error: {type(error).__name__}: {error}", 500))

    def _unary(self, stream: Stream, method: str) -> None:
        messages = _Messages(stream).take()
        if len(messages) != 1:
            raise RequestError(f"{len(messages)} whole messages received, expected one", 500)
        if method == "ModelInfer":
            message = _parse(service_pb2.ModelInferRequest, messages[0])
            inference = self._infer(
                message,
                lambda answer: _answer(stream, answer),
                lambda error: _fail(stream, error),
            )
            stream.on_cancel = inference.cancel
            inference.start(self._readers if len(messages[0]) > INLINE else None)
            return
        if method not in METHODS:
            raise RequestError(f"method {method} is not known", 501)
        kind, call, slow = METHODS[method]
        request = _parse(kind, messages[0])
        if slow:
            future = self._loop.run_in_executor(None, call, self._service, request)
            future.add_done_callback(lambda done: _finish(stream, done))
        else:
            _answer(stream, call(self._service, request))

    def _infer(self, message: Any, answer: Callable[[Any], None], fail: Callable[[RequestError], None]) -> Inference:
        def write(request: Request, scores: Scores) -> None:
            answer(grpc_codec.write(request, scores))

        name = (message.model_name, message.model_version)
        return Inference(self._service, self._loop, name, lambda: grpc_codec.read(message), write, fail)

    def _streaming(self, stream: Stream) -> None:
        """ModelStreamInfer: requests run side by side, their answers keep the order of the requests."""
        call = stream.state
        if not isinstance(call, _StreamCall):
            call = stream.state = _StreamCall(stream)
            stream.on_cancel = call.cancel
        for data in call.messages.take():
            message = _parse(service_pb2.ModelInferRequest, data)
            slot = call.slot(message)
            slot.inference = self._infer(message, slot.answer, slot.fail)
            slot.inference.start(self._readers if len(data) > INLINE else None)
        call.flush()


class _StreamCall:
    """A stream of requests and their answers."""

    def __init__(self, stream: Stream) -> None:
        self.messages = _Messages(stream)
        self._stream = stream
        self._slots: deque[_Slot] = deque()
        stream.send(_HEAD)

    def slot(self, message: Any) -> _Slot:
        """A place in the order of answers."""
        slot = _Slot(self, message.id, message.model_name)
        self._slots.append(slot)
        return slot

    def flush(self) -> None:
        """Send the answers whose turn it is, and end the stream after the last."""
        while self._slots and (data := self._slots[0].data) is not None:
            self._slots.popleft()
            self._stream.send(data=data)
        if self._stream.ended and not self._slots:
            self._stream.send(trailers=_OK)

    def cancel(self) -> None:
        for slot in self._slots:
            if slot.inference:
                slot.inference.cancel()


class _Slot:
    """One request of a stream; `data` is its answer on the wire, once there is one."""

    __slots__ = ("_call", "_id", "_model", "data", "inference")

    def __init__(self, call: _StreamCall, request_id: str, model: str) -> None:
        self._call, self._id, self._model = call, request_id, model
        self.data: bytes | None = None
        self.inference: Inference | None = None

    def answer(self, response: Any) -> None:
        self._set(service_pb2.ModelStreamInferResponse(infer_response=response))

    def fail(self, error: RequestError) -> None:
        response = service_pb2.ModelInferResponse(id=self._id, model_name=self._model)
        self._set(service_pb2.ModelStreamInferResponse(error_message=error.message, infer_response=response))

    def _set(self, response: Any) -> None:
        self.data = _framed(response)
        self._call.flush()


class _Messages:
    """Cuts a stream's data into messages: each a byte that says whether it is compressed, its length, and its bytes."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._rest = b""

    def take(self) -> list[bytes]:
        """The messages that are whole. Raises RequestError at the stream's end when one is not."""
        data = b"".join((self._rest, *self._stream.chunks)) if self._rest else b"".join(self._stream.chunks)
        self._stream.chunks.clear()
        found, at = [], 0
        while len(data) - at >= 5:
            end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
            if end > len(data):
                break
            message = data[at + 5 : end]
            if data[at]:
                encoding = self._stream.headers.get(b"grpc-encoding", b"").decode("latin-1")
                message = unpack(message, encoding, _LARGEST)
            found.append(message)
            at = end
        self._rest = data[at:]
        if self._rest and self._stream.ended:
            raise RequestError(f"the call ends {len(self._rest)} bytes into a message", 500)
        return found


def _parse(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise RequestError(f"not a {kind.DESCRIPTOR.name}: {error}", 500) from error


def _framed(message: Any) -> bytes:
    data = message.SerializeToString()
    return b"\0%b%b" % (len(data).to_bytes(4, "big"), data)


def _answer(stream: Stream, message: Any) -> None:
    stream.send(_HEAD, _framed(message), _OK)


def _fail(stream: Stream, error: RequestError) -> None:
    text = quote(error.message[:_LONGEST_TEXT], safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~").encode()
    trailers = encode((b"grpc-status", b"%d" % _CODES.get(error.status, 2)), (b"grpc-message", text))
    head = b"" if isinstance(stream.state, _StreamCall) else _HEAD
    stream.send(head, b"", trailers)


def _finish(stream: Stream, done: asyncio.Future[Any]) -> None:
    error = done.exception()
    if error is None:
        _answer(stream, done.result())
    else:
        _fail(stream, error if isinstance(error, RequestError) else RequestError(str(error), 500))
