"""HTTP/2 (RFC 9113) without TLS on asyncio, as far as gRPC needs it: the server's side of connections and streams."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol, cast

from lanner.serve.hpack import Decoder, HpackError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, REFUSED_STREAM, COMPRESSION_ERROR = 0, 1, 3, 6, 7, 9

_INITIAL_WINDOW_SIZE, _MAX_FRAME_SIZE = 4, 5
_LARGEST_WINDOW = 2**31 - 1
_LARGEST_FRAME = 1 << 20
_MOST_STREAMS = 4096
_MOST_HEADERS = 64 << 10
_REPLENISH = 1 << 24
"""Received bytes after which the peer is told that they have been taken."""

_OUR_SETTINGS = b"".join(
    number.to_bytes(2, "big") + value.to_bytes(4, "big")
    for number, value in ((3, _MOST_STREAMS), (4, _LARGEST_WINDOW), (5, _LARGEST_FRAME), (6, _MOST_HEADERS))
)


class ProtocolError(Exception):
    """The peer broke the protocol; the connection ends with `code`."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Stream:
    """One exchange. `chunks` is what has been received and not yet taken; `ended` when nothing more will come."""

    __slots__ = (
        "_connection",
        "chunks",
        "ended",
        "headers",
        "id",
        "on_cancel",
        "pending",
        "state",
        "taken",
        "trailers",
        "window",
    )

    def __init__(self, connection: Http2Connection, number: int, headers: dict[bytes, bytes], window: int) -> None:
        self._connection = connection
        self.id = number
        self.headers = headers
        self.window = window
        self.chunks: list[bytes] = []
        self.taken = 0
        self.ended = False
        self.pending = bytearray()
        self.trailers: bytes | None = None
        self.on_cancel: Callable[[], None] | None = None
        self.state: object = None

    def send(self, headers: bytes = b"", data: bytes = b"", trailers: bytes | None = None) -> None:
        """Send header block, body data and, as the stream's end, trailers; one write where the peer's window allows.

        Event loop thread only; nothing happens when the stream is gone.
        """
        self._connection.send(self, headers, data, trailers)


class Handles(Protocol):
    """What happens on streams."""

    def received(self, stream: Stream) -> None:
        """Headers, data or the end of a stream have come."""


class Http2Connection(asyncio.Protocol):
    """One client connection."""

    def __init__(self, handler: Handles, connections: set[Http2Connection]) -> None:
        self._handler, self._connections = handler, connections
        self._decoder = Decoder()
        self._buffer = bytearray()
        self._greeted = self._closing = False
        self._streams: dict[int, Stream] = {}
        self._last = 0
        self._taken = 0
        self._window, self._stream_window, self._frame_size = 65535, 65535, 16384
        self._block: tuple[int, int, bytearray] | None = None  # stream, flags and fragments of unfinished headers

    @property
    def idle(self) -> bool:
        """True when no stream is open."""
        return not self._streams

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)
        if (sock := transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        grown = (_LARGEST_WINDOW - 65535).to_bytes(4, "big")
        self._transport.write(frame(SETTINGS, 0, 0, _OUR_SETTINGS) + frame(WINDOW_UPDATE, 0, 0, grown))

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._closing = True
        for stream in list(self._streams.values()):
            self._cancel(stream)

    def close(self) -> None:
        """Take no new streams, and close once the open ones have ended."""
        if not self._closing:
            self._closing = True
            self._transport.write(_goaway(self._last, NO_ERROR))
        if not self._streams:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            self._read()
        except (ProtocolError, HpackError) as error:
            code = error.code if isinstance(error, ProtocolError) else COMPRESSION_ERROR
            self._transport.write(_goaway(self._last, code, str(error).encode()))
            self._transport.close()
            self._buffer.clear()

    def send(self, stream: Stream, headers: bytes, data: bytes, trailers: bytes | None) -> None:
        """See `Stream.send`."""
        if self._streams.get(stream.id) is not stream or self._transport.is_closing():
            return
        parts = [frame(HEADERS, END_HEADERS, stream.id, headers)] if headers else []
        stream.pending += data
        stream.trailers = trailers
        self._pump(stream, parts)
        if parts:
            self._transport.write(b"".join(parts))
        if self._closing and not self._streams:
            self._transport.close()

    def _pump(self, stream: Stream, parts: list[bytes]) -> None:
        """Frames of what the windows let through, then the trailers."""
        while stream.pending:
            count = min(len(stream.pending), self._frame_size, self._window, stream.window)
            if count <= 0:
                return
            parts.append(frame(DATA, 0, stream.id, bytes(stream.pending[:count])))
            del stream.pending[:count]
            self._window -= count
            stream.window -= count
        if stream.trailers is not None:
            parts.append(frame(HEADERS, END_HEADERS | END_STREAM, stream.id, stream.trailers))
            if not stream.ended:  # answered early: the rest of the request is not wanted
                parts.append(frame(RST_STREAM, 0, stream.id, NO_ERROR.to_bytes(4, "big")))
            self._streams.pop(stream.id, None)

    def _read(self) -> None:
        buffer, at = self._buffer, 0
        if not self._greeted:
            if buffer[: len(PREFACE)] != PREFACE[: len(buffer)]:
                raise ProtocolError(PROTOCOL_ERROR, "this port speaks gRPC (HTTP/2 without TLS)")
            if len(buffer) < len(PREFACE):
                return
            self._greeted, at = True, len(PREFACE)
        while len(buffer) - at >= 9:
            length = int.from_bytes(buffer[at : at + 3], "big")
            if length > _LARGEST_FRAME:
                raise ProtocolError(FRAME_SIZE_ERROR, f"frame of {length} bytes, allowed are {_LARGEST_FRAME}")
            end = at + 9 + length
            if end > len(buffer):
                break
            number = int.from_bytes(buffer[at + 5 : at + 9], "big") & 0x7FFFFFFF
            self._frame(buffer[at + 3], buffer[at + 4], number, bytes(buffer[at + 9 : end]))
            at = end
        del buffer[:at]

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if (self._block is not None) != (kind == CONTINUATION) and kind <= CONTINUATION:
            raise ProtocolError(PROTOCOL_ERROR, "a header block must be continued at once")
        match kind:
            case _ if kind == DATA:
                self._data(flags, number, payload)
            case _ if kind == HEADERS:
                payload = _unpadded(flags, payload)
                skipped = 5 if flags & HAS_PRIORITY else 0
                self._block = (number, flags, bytearray(payload[skipped:]))
                self._continue(flags)
            case _ if kind == CONTINUATION:
                assert self._block is not None
                self._block[2].extend(payload)
                self._continue(flags)
            case _ if kind == RST_STREAM:
                if stream := self._streams.get(number):
                    self._cancel(stream)
            case _ if kind == SETTINGS:
                self._settings(flags, payload)
            case _ if kind == PING:
                if len(payload) != 8:
                    raise ProtocolError(FRAME_SIZE_ERROR, "a ping has 8 bytes")
                if not flags & ACK:
                    self._transport.write(frame(PING, ACK, 0, payload))
            case _ if kind == WINDOW_UPDATE:
                self._grow(number, payload)
            case _ if kind == PUSH_PROMISE:
                raise ProtocolError(PROTOCOL_ERROR, "clients do not push")

    def _continue(self, flags: int) -> None:
        """Take the header block once it is whole."""
        assert self._block is not None
        number, first_flags, block = self._block
        if len(block) > _MOST_HEADERS:
            raise ProtocolError(PROTOCOL_ERROR, f"headers of more than {_MOST_HEADERS} bytes")
        if not flags & END_HEADERS:
            return
        self._block = None
        headers = dict(self._decoder.decode(bytes(block)))
        stream = self._streams.get(number)
        if stream is None:
            if number <= self._last:
                return  # of a stream that has ended
            stream = self._open(number, headers)
            if stream is None:
                return
        stream.ended = stream.ended or bool(first_flags & END_STREAM)
        self._handler.received(stream)

    def _open(self, number: int, headers: dict[bytes, bytes]) -> Stream | None:
        if number % 2 == 0:
            raise ProtocolError(PROTOCOL_ERROR, f"stream {number} cannot be opened by a client")
        self._last = number
        if self._closing or len(self._streams) >= _MOST_STREAMS:
            self._transport.write(frame(RST_STREAM, 0, number, REFUSED_STREAM.to_bytes(4, "big")))
            return None
        stream = self._streams[number] = Stream(self, number, headers, self._stream_window)
        return stream

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        if number == 0 or number > self._last:
            raise ProtocolError(PROTOCOL_ERROR, f"data for stream {number}, which is not open")
        self._taken += len(payload)
        if self._taken >= _REPLENISH:
            self._transport.write(frame(WINDOW_UPDATE, 0, 0, self._taken.to_bytes(4, "big")))
            self._taken = 0
        stream = self._streams.get(number)
        if stream is None or stream.ended:
            return
        stream.taken += len(payload)
        if stream.taken >= _REPLENISH:
            self._transport.write(frame(WINDOW_UPDATE, 0, number, stream.taken.to_bytes(4, "big")))
            stream.taken = 0
        stream.chunks.append(_unpadded(flags, payload))
        stream.ended = bool(flags & END_STREAM)
        self._handler.received(stream)

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & ACK:
            return
        if len(payload) % 6:
            raise ProtocolError(FRAME_SIZE_ERROR, "settings have 6 bytes each")
        for at in range(0, len(payload), 6):
            number, value = int.from_bytes(payload[at : at + 2], "big"), int.from_bytes(payload[at + 2 : at + 6], "big")
            if number == _INITIAL_WINDOW_SIZE:
                if value > _LARGEST_WINDOW:
                    raise ProtocolError(FLOW_CONTROL_ERROR, f"initial window of {value} bytes")
                for stream in self._streams.values():
                    stream.window += value - self._stream_window
                self._stream_window = value
            elif number == _MAX_FRAME_SIZE:
                self._frame_size = min(max(value, 16384), _LARGEST_FRAME)
        self._transport.write(frame(SETTINGS, ACK, 0, b""))
        self._resume()

    def _grow(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ProtocolError(FRAME_SIZE_ERROR, "a window update has 4 bytes")
        amount = int.from_bytes(payload, "big") & 0x7FFFFFFF
        if number == 0:
            self._window += amount
            if amount == 0 or self._window > _LARGEST_WINDOW:
                raise ProtocolError(FLOW_CONTROL_ERROR, f"window of {self._window} bytes")
        elif stream := self._streams.get(number):
            stream.window += amount
        self._resume()

    def _resume(self) -> None:
        """Send what was held back by a window."""
        parts: list[bytes] = []
        for stream in [stream for stream in self._streams.values() if stream.pending]:
            self._pump(stream, parts)
        if parts:
            self._transport.write(b"".join(parts))
        if self._closing and not self._streams:
            self._transport.close()

    def _cancel(self, stream: Stream) -> None:
        """Forget a stream that the client has given up."""
        self._streams.pop(stream.id, None)
        if stream.on_cancel:
            stream.on_cancel()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame on the wire."""
    return b"%b%c%c%b%b" % (len(payload).to_bytes(3, "big"), kind, flags, stream.to_bytes(4, "big"), payload)


def _goaway(last: int, code: int, text: bytes = b"") -> bytes:
    return frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big") + text)


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ProtocolError(PROTOCOL_ERROR, "padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]
