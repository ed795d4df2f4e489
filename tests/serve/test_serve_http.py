"""HTTP on the wire: pipelining, chunks, limits and everything malformed, spoken through a bare socket."""

from __future__ import annotations

import gzip
import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

ONE_ROW = json.dumps({"inputs": [{"name": "ids", "datatype": "INT64", "shape": [1, 4], "data": [0, 0, 3, 0]}]}).encode()
INFER = b"/v2/models/planted/infer"


class Wire:
    """A connection that sends bytes and reads whole answers."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.buffer = b""

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def post(self, body: bytes, path: bytes = INFER, headers: bytes = b"") -> None:
        self.send(b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%b\r\n%b" % (path, len(body), headers, body))

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers (lower-case names) and body of the next answer."""
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
        length = int(headers.get("content-length", 0))
        while len(self.buffer) < length:
            self._more()
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return int(lines[0].split()[1]), headers, body

    def closed(self) -> bool:
        """True when the server has closed the connection."""
        return not self.buffer and self.socket.recv(1) == b""

    def _more(self) -> None:
        data = self.socket.recv(65536)
        assert data, f"connection closed after {self.buffer!r}"
        self.buffer += data


@pytest.fixture
def wire(server: Any) -> Iterator[Wire]:
    with closing(Wire(server.http)) as found:
        yield found


def score(answer: tuple[int, dict[str, str], bytes]) -> float:
    status, _, body = answer
    assert status == 200, body
    return float(json.loads(body)["outputs"][0]["data"][0])


def test_pipelined_requests_are_answered_in_order(wire: Wire) -> None:
    for name in ("a", "b", "c"):
        wire.post(json.dumps({"id": name, **json.loads(ONE_ROW)}).encode())
    wire.send(b"GET /v2/health/live HTTP/1.1\r\n\r\n")
    assert [json.loads(wire.answer()[2])["id"] for _ in range(3)] == ["a", "b", "c"]
    assert wire.answer()[0] == 200


def test_chunked_bodies_are_read(wire: Wire) -> None:
    wire.send(b"POST %b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" % INFER)
    for byte in ONE_ROW:
        wire.send(b"1\r\n%c\r\n" % byte)
    wire.send(b"0\r\n\r\n")
    assert score(wire.answer()) == pytest.approx(0.952574, abs=1e-6)


def test_a_request_may_arrive_byte_by_byte(wire: Wire) -> None:
    whole = b"POST %b HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (INFER, len(ONE_ROW), ONE_ROW)
    for byte in whole:
        wire.send(bytes([byte]))
    assert score(wire.answer()) == pytest.approx(0.952574, abs=1e-6)


def test_expect_100_continue_is_answered_before_the_body(wire: Wire) -> None:
    wire.send(b"POST %b HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (INFER, len(ONE_ROW)))
    assert wire.answer()[0] == 100
    wire.send(ONE_ROW)
    assert score(wire.answer()) == pytest.approx(0.952574, abs=1e-6)


def test_connection_close_and_http_1_0_end_the_connection(server: Any) -> None:
    for request in (b"GET /v2 HTTP/1.1\r\nConnection: close\r\n\r\n", b"GET /v2 HTTP/1.0\r\n\r\n"):
        with closing(Wire(server.http)) as wire:
            wire.send(request)
            assert wire.answer()[0] == 200
            assert wire.closed()


@pytest.mark.parametrize("path", [b"/v2", b"/v2/", b"/v2/models/planted/versions/1/config", b"/v2/models/stats"])
def test_paths_with_and_without_versions(wire: Wire, path: bytes) -> None:
    wire.send(b"GET %b HTTP/1.1\r\n\r\n" % path)
    assert wire.answer()[0] == 200


def test_a_compressed_answer_is_given_only_when_asked_for(wire: Wire) -> None:
    rows = json.dumps({"inputs": [{"name": "ids", "datatype": "INT64", "shape": [999, 4], "data": [0, 0, 3, 0] * 999}]})
    for headers in (b"", b"Accept-Encoding: gzip\r\n"):
        wire.post(rows.encode(), headers=headers)
        status, seen, body = wire.answer()
        assert (status, seen.get("content-encoding")) == (200, "gzip" if headers else None)
        data = json.loads(gzip.decompress(body) if headers else body)["outputs"][0]["data"]
        assert len(data) == 999


@pytest.mark.parametrize(
    ("body", "headers", "status", "problem"),
    [
        (b"", b"", 400, "parse"),
        (b"{", b"", 400, "parse"),
        (b"\xff" * 100, b"", 400, "parse"),
        (ONE_ROW, b"Inference-Header-Content-Length: 99999999999\r\n", 400, "Inference-Header-Content-Length"),
        (ONE_ROW, b"Inference-Header-Content-Length: -5\r\n", 400, "Inference-Header-Content-Length"),
        (ONE_ROW, b"Inference-Header-Content-Length: %b\r\n" % (b"9" * 5000), 400, "Inference-Header-Content-Length"),
        (ONE_ROW + b" " * 20_000, b"Inference-Header-Content-Length: \xb2\r\n", 400, "Inference-Header-Content"),
        (ONE_ROW + b" " * 20_000, b"Inference-Header-Content-Length: %b\r\n" % (b"9" * 5000), 400, "Inference-Header"),
        (ONE_ROW.replace(b"[1, 4]", b"[%b4]" % (b"1, " * 99)), b"", 400, "100 dimensions"),
        (
            b'{"inputs":[{"name":"ids","datatype":"INT64","shape":[9223372036854775807,0],"data":[]}]}',
            b"",
            400,
            "more elements",
        ),
        (ONE_ROW, b"Content-Encoding: br\r\n", 400, "Unsupported Content-Encoding: br"),
        (ONE_ROW, b"Content-Encoding: gzip\r\n", 400, "damaged"),
        (gzip.compress(ONE_ROW)[:-9], b"Content-Encoding: gzip\r\n", 400, "cut off"),
        (ONE_ROW.replace(b"[1, 4]", b"[-1, 4]"), b"", 400, "non-negative"),
        (ONE_ROW.replace(b"INT64", b"INT99"), b"", 400, "INT99"),
        (ONE_ROW.replace(b"3, 0]", b"3]"), b"", 400, "3 elements"),
        (b'{"inputs":[]}', b"", 400, "no inputs"),
    ],
)
def test_malformed_requests_get_an_answer_and_the_connection_goes_on(
    wire: Wire, server: Any, body: bytes, headers: bytes, status: int, problem: str
) -> None:
    wire.post(body, headers=headers)
    seen, _, text = wire.answer()
    assert seen == status
    assert re.search(problem, json.loads(text)["error"])
    wire.post(ONE_ROW)
    assert score(wire.answer()) == pytest.approx(0.952574, abs=1e-6)
    assert server.process.poll() is None


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /v2/models/planted/infer HTTP/1.1\r\n\r\n", 405),
        (b"GET /v2/models/nothing HTTP/1.1\r\n\r\n", 404),
        (b"GET /v2/models/planted/versions/7 HTTP/1.1\r\n\r\n", 404),
        (b"GET /nowhere HTTP/1.1\r\n\r\n", 404),
        (b"POST /v2/systemsharedmemory/region/a/register HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 501),
        (b"POST /v2/cudasharedmemory/unregister HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 200),
        (b"POST /v2/repository/index HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 200),
    ],
)
def test_status_codes(wire: Wire, request_: bytes, status: int) -> None:
    wire.send(request_)
    seen, _, body = wire.answer()
    assert seen == status
    if status >= 400:
        assert json.loads(body)["error"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        (b"DELETE", b"/v2/models/planted", "GET, HEAD"),
        (b"POST", b"/v2/models/planted/versions/1/config", "GET, HEAD"),
        (b"PUT", b"/v2/models/planted/infer", "POST"),
        (b"POST", b"/v2/models/stats", "GET, HEAD"),
        (b"DELETE", b"/v2/health/live", "GET, HEAD"),
        (b"GET", b"/v2/repository/index", "POST"),
        (b"GET", b"/v2/repository/models/planted/unload", "POST"),
        (b"GET", b"/v2/systemsharedmemory/unregister", "POST"),
        (b"DELETE", b"/v2/logging", "GET, HEAD, POST"),
    ],
)
def test_a_method_that_a_path_does_not_take_is_refused(wire: Wire, method: bytes, path: bytes, allowed: str) -> None:
    wire.send(b"%b %b HTTP/1.1\r\nContent-Length: 0\r\n\r\n" % (method, path))
    status, headers, body = wire.answer()
    assert (status, headers["allow"]) == (405, allowed)
    assert method.decode() in json.loads(body)["error"]
    wire.send(b"HEAD /v2/models/planted HTTP/1.1\r\n\r\nGET /v2/health/live HTTP/1.1\r\n\r\n")
    assert wire.socket.recv(4) == b"HTTP"


@pytest.mark.parametrize("junk", [b"\x00\x01\x02\r\n\r\n", b"POST /v2 HTTP/1.1\r\nContent-Length: x\r\n\r\n"])
def test_what_is_not_http_is_refused_and_closed(wire: Wire, server: Any, junk: bytes) -> None:
    wire.send(junk)
    assert wire.answer()[0] == 400
    assert wire.closed()
    assert server.process.poll() is None


def test_bodies_above_the_limit_are_refused_early(server: Any) -> None:
    limit = 64 << 20
    with closing(Wire(server.http)) as wire:
        wire.send(b"POST %b HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (INFER, limit + 1))
        status, _, body = wire.answer()
        assert (status, str(limit) in json.loads(body)["error"]) == (400, True)
        assert wire.closed()
    bomb = gzip.compress(b" " * (limit + 10), 1)
    with closing(Wire(server.http)) as wire:
        wire.post(bomb, headers=b"Content-Encoding: gzip\r\n")
        assert "maximum allowed" in json.loads(wire.answer()[2])["error"]


def test_a_body_above_the_limit_sent_whole_still_gets_its_answer(server: Any) -> None:
    size = (64 << 20) + 1
    for framing in (b"Content-Length: %d\r\n\r\n" % size, b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % size):
        with closing(Wire(server.http)) as wire:
            wire.send(b"POST %b HTTP/1.1\r\n%b" % (INFER, framing))
            for _ in range(size >> 20):
                wire.send(bytes(1 << 20))
            wire.send(b" ")
            status, headers, body = wire.answer()
            assert (status, headers["connection"]) == (400, "close")
            assert "maximum allowed" in json.loads(body)["error"]
            assert wire.closed()


def test_a_client_that_sends_no_more_gets_its_answers(wire: Wire) -> None:
    wire.post(ONE_ROW)
    wire.post(ONE_ROW)
    wire.socket.shutdown(socket.SHUT_WR)
    first, last = wire.answer(), wire.answer()
    assert score(first) == score(last) == pytest.approx(0.952574, abs=1e-6)
    assert wire.closed()  # an answer that was under way before the end of input came does not announce it


def test_a_client_that_sends_no_more_within_a_request_is_closed(wire: Wire) -> None:
    wire.send(b"POST %b HTTP/1.1\r\nContent-Length: 9\r\n\r\n{" % INFER)
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.closed()


def test_a_client_that_leaves_costs_nothing(server: Any) -> None:
    for _ in range(20):
        with closing(Wire(server.http)) as wire:
            wire.post(ONE_ROW)
    with closing(Wire(server.http)) as wire:
        wire.post(ONE_ROW)
        assert score(wire.answer()) == pytest.approx(0.952574, abs=1e-6)


def test_metrics_agree_with_the_statistics(server: Any) -> None:
    with closing(Wire(server.metrics)) as pages, closing(Wire(server.http)) as wire:
        wire.post(ONE_ROW)
        wire.answer()
        wire.send(b"GET /v2/models/planted/stats HTTP/1.1\r\n\r\n")
        statistics = json.loads(wire.answer()[2])["model_stats"][0]
        pages.send(b"GET /metrics HTTP/1.1\r\n\r\n")
        status, headers, body = pages.answer()
        assert status == 200
        assert headers["content-type"].startswith("text/plain; version=0.0.4")
        samples = dict(re.findall(r'^(nv_\w+)\{model="planted",version="1"\} (\d+)$', body.decode(), re.M))
        assert int(samples["nv_inference_count"]) == statistics["inference_count"]
        assert int(samples["nv_inference_exec_count"]) == statistics["execution_count"]
        assert int(samples["nv_inference_request_success"]) == statistics["inference_stats"]["success"]["count"]
        assert samples["nv_inference_pending_request_count"] == "0"
        failures = re.findall(r'^nv_inference_request_failure\{model="planted",reason="\w+",version="1"\} (\d+)$',
                              body.decode(), re.M)  # fmt: skip
        assert sum(map(int, failures)) == statistics["inference_stats"]["fail"]["count"]
        pages.send(b"GET / HTTP/1.1\r\n\r\n")
        assert pages.answer()[0] == 404
