"""HTTP/2 and its header compression, frame by frame; gRPC clients themselves are in test_serve_clients.py."""

from __future__ import annotations

import gzip
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from lanner.serve import http2
from lanner.serve.hpack import Decoder, HpackError, encode

INFER = "/inference.GRPCInferenceService/ModelInfer"


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.binary(max_size=400)), max_size=8))
def test_literal_headers_survive(headers: list[tuple[bytes, bytes]]) -> None:
    assert Decoder().decode(encode(*headers)) == headers


def test_the_rfcs_own_examples_are_decoded() -> None:
    """RFC 7541, C.4: three requests on one connection, Huffman coded, with a growing dynamic table."""
    decoder = Decoder()
    plain = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"www.example.com")]
    first = bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff")
    second = bytes.fromhex("828684be5886a8eb10649cbf")
    third = bytes.fromhex("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf")
    assert decoder.decode(first) == plain
    assert decoder.decode(second) == [*plain, (b"cache-control", b"no-cache")]
    secure = [(b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/index.html"), plain[3]]
    assert decoder.decode(third) == [*secure, (b"custom-key", b"custom-value")]


def test_the_dynamic_table_evicts_and_resizes() -> None:
    decoder = Decoder()
    for k in range(200):  # each entry costs 32 + 4 + 100 bytes, so that 30 stay
        decoder.decode(b"\x40\x04name\x64" + b"%100d" % k)
    assert decoder.decode(bytes([0x80 | 62])) == [(b"name", b"%100d" % 199)]
    assert decoder.decode(bytes([0x80 | 91])) == [(b"name", b"%100d" % 170)]
    with pytest.raises(HpackError, match="index 92"):
        decoder.decode(bytes([0x80 | 92]))
    decoder.decode(b"\x20")  # the peer empties it
    with pytest.raises(HpackError, match="index 62"):
        decoder.decode(bytes([0x80 | 62]))


@pytest.mark.parametrize(
    "block",
    [b"\x80", b"\x40", b"\x00\x05ab", b"\x00\x7f\xff\xff\xff\xff\xff", b"\x3f\xff\x7f", b"\x00\x01a\x81\x00",
     b"\x00\x01a\x84\xff\xff\xff\xff"],
)  # fmt: skip
def test_damaged_header_blocks_are_refused(block: bytes) -> None:
    with pytest.raises(HpackError):
        Decoder().decode(block)


@given(st.binary(max_size=60))
def test_random_header_blocks_are_decoded_or_refused(block: bytes) -> None:
    with suppress(HpackError):
        Decoder().decode(block)


class Peer:
    """A client that speaks frames."""

    def __init__(self, port: int, greet: bool = True, settings: bytes = b"") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.decoder = Decoder()
        self.buffer = b""
        if greet:
            self.socket.sendall(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, settings))

    def close(self) -> None:
        self.socket.close()

    def send(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self.socket.sendall(http2.frame(kind, flags, stream, payload))

    def call(self, stream: int, message: bytes, path: str = INFER, **headers: str) -> None:
        """Start and end a call with one message."""
        more = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        block = encode((b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()), *more)
        self.send(http2.HEADERS, http2.END_HEADERS, stream, block)
        self.send(http2.DATA, http2.END_STREAM, stream, message)

    def frame(self) -> tuple[int, int, int, bytes]:
        """The next frame: kind, flags, stream, payload."""
        while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
            data = self.socket.recv(65536)
            assert data, "the server closed the connection"
            self.buffer += data
        length = int.from_bytes(self.buffer[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
        payload, self.buffer = self.buffer[9 : 9 + length], self.buffer[9 + length :]
        return kind, flags, stream, payload

    def until(self, kind: int) -> tuple[int, int, bytes]:
        """Flags, stream and payload of the next frame of that kind."""
        while True:
            seen, flags, stream, payload = self.frame()
            if seen == kind:
                return flags, stream, payload

    def answer(self, stream: int) -> tuple[bytes, dict[bytes, bytes]]:
        """Data and trailers of a stream."""
        data = b""
        while True:
            kind, flags, number, payload = self.frame()
            if kind == http2.HEADERS:
                headers = dict(self.decoder.decode(payload))
                if number == stream and flags & http2.END_STREAM:
                    return data, headers
            elif kind == http2.DATA and number == stream:
                data += payload


@pytest.fixture
def peer(server: Any) -> Iterator[Peer]:
    with closing(Peer(server.grpc)) as found:
        yield found


def message(rows: int = 1, last: int = 0, compressed: bool = False) -> bytes:
    """A framed ModelInferRequest for the planted model."""
    request = service_pb2.ModelInferRequest(model_name="planted")
    request.inputs.add(name="ids", datatype="INT64", shape=[rows, 4])
    request.raw_input_contents.append(np.tile(np.array([0, 0, 3, last]), (rows, 1)).astype("<i8").tobytes())
    data = request.SerializeToString()
    data = gzip.compress(data) if compressed else data
    return bytes([compressed]) + len(data).to_bytes(4, "big") + data


def scores(data: bytes) -> np.ndarray:
    assert int.from_bytes(data[1:5], "big") == len(data) - 5
    response = service_pb2.ModelInferResponse.FromString(data[5:])
    return np.frombuffer(response.raw_output_contents[0], dtype="<f4")


EXPECTED = pytest.approx(1 / (1 + np.exp(-3.0)), abs=1e-6)


def test_a_call_in_pieces_with_padding_priority_and_continuations(peer: Peer) -> None:
    block = encode((b":method", b"POST"), (b":path", INFER.encode()), (b"x", b"y" * 300))
    first = b"\x03" + b"\0" * 5 + block[:100] + b"\0" * 3
    peer.send(http2.HEADERS, http2.PADDED | http2.HAS_PRIORITY, 1, first)
    peer.send(http2.CONTINUATION, 0, 1, block[100:200])
    peer.send(http2.CONTINUATION, http2.END_HEADERS, 1, block[200:])
    data = message()
    peer.send(http2.DATA, http2.PADDED, 1, b"\x02" + data[:7] + b"\0\0")
    peer.send(http2.DATA, 0, 1, data[7:])
    peer.send(http2.DATA, http2.END_STREAM, 1)
    answer, trailers = peer.answer(1)
    assert trailers[b"grpc-status"] == b"0"
    assert scores(answer) == EXPECTED


def test_many_calls_share_a_connection(peer: Peer) -> None:
    for number in range(1, 101, 2):
        peer.call(number, message())
    for _ in range(50):
        flags, _, _ = peer.until(http2.HEADERS)
        while not flags & http2.END_STREAM:
            flags, _, _ = peer.until(http2.HEADERS)


def test_answers_obey_the_clients_windows_and_frame_size(server: Any) -> None:
    small = (4).to_bytes(2, "big") + (100).to_bytes(4, "big")  # initial window of a stream: 100 bytes
    with closing(Peer(server.grpc, settings=small)) as peer:
        peer.call(1, message(rows=200))
        received = b""
        while len(received) < 100:
            received += peer.until(http2.DATA)[2]
        assert len(received) == 100
        peer.send(http2.PING, 0, 0, b"12345678")
        assert peer.frame() == (http2.PING, http2.ACK, 0, b"12345678")  # nothing more came before it
        peer.send(http2.WINDOW_UPDATE, 0, 1, (1 << 20).to_bytes(4, "big"))
        rest, trailers = peer.answer(1)
        assert trailers[b"grpc-status"] == b"0"
        assert scores(received + rest) == pytest.approx(np.full(200, 1 / (1 + np.exp(-3.0))), abs=1e-6)


def test_compressed_messages_are_read(peer: Peer) -> None:
    peer.call(1, message(compressed=True), grpc_encoding="gzip")
    answer, trailers = peer.answer(1)
    assert trailers[b"grpc-status"] == b"0"
    assert scores(answer) == EXPECTED


@pytest.mark.parametrize(
    ("body", "path", "status", "text"),
    [
        (b"", INFER, b"13", b"0 whole messages"),
        (message()[:-3], INFER, b"13", b"into a message"),
        (message() * 2, INFER, b"13", b"2 whole messages"),
        (b"\0\0\0\0\x02\xff\xff", INFER, b"13", b"not a ModelInferRequest"),
        (b"\x01\0\0\0\x02\xff\xff", INFER, b"3", b"Content-Encoding"),
        (message(last=77), INFER, b"3", b"id 77 in row 0 is outside 0..9"),
        (message(), INFER + "s", b"12", b"ModelInfers is not known"),
        (message(), "/other.Service/Method", b"12", b"is not known"),
    ],
)
def test_wrong_calls_get_a_status_and_the_connection_goes_on(
    peer: Peer, body: bytes, path: str, status: bytes, text: bytes
) -> None:
    peer.call(1, body, path, grpc_encoding="identity" if body[:1] == b"\0" else "br")
    _, trailers = peer.answer(1)
    assert trailers[b"grpc-status"] == status
    assert text in trailers[b"grpc-message"]
    peer.call(3, message())
    assert scores(peer.answer(3)[0]) == EXPECTED


def test_a_stream_the_client_resets_is_forgotten(peer: Peer) -> None:
    for number in range(1, 61, 2):
        peer.send(http2.HEADERS, http2.END_HEADERS, number, encode((b":path", INFER.encode())))
        peer.send(http2.RST_STREAM, 0, number, (8).to_bytes(4, "big"))
    peer.send(http2.DATA, 0, 1, b"late")
    peer.call(61, message())
    assert scores(peer.answer(61)[0]) == EXPECTED


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([(http2.DATA, 0, 5, b"x")], http2.PROTOCOL_ERROR),
        ([(http2.HEADERS, http2.END_HEADERS, 2, b"\x82")], http2.PROTOCOL_ERROR),
        ([(http2.HEADERS, http2.END_HEADERS, 1, b"\x80")], http2.COMPRESSION_ERROR),
        ([(http2.HEADERS, 0, 1, b"\x82"), (http2.PING, 0, 0, b"\0" * 8)], http2.PROTOCOL_ERROR),
        ([(http2.CONTINUATION, 0, 1, b"\x82")], http2.PROTOCOL_ERROR),
        ([(http2.HEADERS, http2.PADDED | http2.END_HEADERS, 1, b"\xff\x82")], http2.PROTOCOL_ERROR),
        ([(http2.SETTINGS, 0, 0, b"\0" * 5)], http2.FRAME_SIZE_ERROR),
        ([(http2.PING, 0, 0, b"\0")], http2.FRAME_SIZE_ERROR),
        ([(http2.WINDOW_UPDATE, 0, 0, b"\0\0\0\0")], http2.FLOW_CONTROL_ERROR),
        ([(http2.HEADERS, 0, 1, b"\0" * 70_000)], http2.PROTOCOL_ERROR),
        ([(http2.PUSH_PROMISE, 0, 1, b"\0" * 4)], http2.PROTOCOL_ERROR),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_told_so_and_left(
    server: Any, frames: list[tuple[int, int, int, bytes]], code: int
) -> None:
    with closing(Peer(server.grpc)) as peer:
        for given_frame in frames:
            peer.send(*given_frame)
        _, _, payload = peer.until(http2.GOAWAY)
        assert int.from_bytes(payload[4:8], "big") == code
        assert payload[8:]
    with closing(Peer(server.grpc)) as peer:
        peer.call(1, message())
        assert scores(peer.answer(1)[0]) == EXPECTED


def test_a_client_of_another_protocol_is_told_so(server: Any) -> None:
    with closing(Peer(server.grpc, greet=False)) as peer:
        peer.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert b"speaks gRPC" in peer.until(http2.GOAWAY)[2]
    with closing(Peer(server.grpc, greet=False)) as peer:
        for byte in http2.PREFACE:
            peer.socket.sendall(bytes([byte]))
        peer.send(http2.SETTINGS, 0, 0)
        peer.call(1, message())
        assert scores(peer.answer(1)[0]) == EXPECTED
