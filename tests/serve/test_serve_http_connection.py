"""Time limits and the end of an HTTP connection, with a handler that the tests hold by the hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lanner.serve.http_protocol import Connection, Exchange

GET = b"GET /%d HTTP/1.1\r\n\r\n"


class Peer:
    """A connection of its own to a server in this process; `waiting` holds the exchanges not answered."""

    def __init__(self) -> None:
        self.waiting: list[Exchange] = []
        self.stopping = False
        self.head_seconds = 30.0

    async def connect(self) -> None:
        self.connections: set[Connection] = set()
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._accept, "127.0.0.1", 0)
        port = self._listener.sockets[0].getsockname()[1]
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)

    def _accept(self) -> Connection:
        return Connection(self.waiting.append, self.connections, 1000, lambda: self.stopping, self.head_seconds)

    async def received(self, count: int) -> None:
        while len(self.waiting) < count:
            await asyncio.sleep(0.001)

    def close(self) -> None:
        self.writer.close()
        self._listener.close()


def run(test: Callable[[Peer], Awaitable[None]], **settings: Any) -> None:
    """Run `test` with a connected peer, for 30 seconds at most."""

    async def body() -> None:
        peer = Peer()
        for name, value in settings.items():
            setattr(peer, name, value)
        await peer.connect()
        await asyncio.wait_for(test(peer), 30)
        peer.close()

    asyncio.run(body())


def test_a_server_that_stops_answers_all_it_received_and_says_that_it_closes() -> None:
    async def test(peer: Peer) -> None:
        peer.writer.write(GET % 1 + GET % 2 + GET % 3)
        await peer.received(3)
        peer.stopping = True
        for exchange in reversed(peer.waiting):
            exchange.respond(200)
        answers = (await peer.reader.read()).split(b"HTTP/1.1 ")[1:]
        assert [b"Connection: close" in answer for answer in answers] == [False, False, True]

    run(test)


def test_answers_given_while_reading_wait_for_the_last_request_read() -> None:
    class Inline(list[Exchange]):
        def append(self, exchange: Exchange) -> None:
            exchange.respond(200, (exchange.path.encode(),))

    async def test(peer: Peer) -> None:
        peer.writer.write(GET % 1 + GET % 2)
        answers = (await peer.reader.read()).split(b"HTTP/1.1 ")[1:]
        assert [b"Connection: close" in answer for answer in answers] == [False, True]
        assert [answer[-2:] for answer in answers] == [b"/1", b"/2"]

    run(test, stopping=True, waiting=Inline())


@pytest.mark.parametrize(
    ("sent", "status"), [(b"", b""), (b"GET / HT", b"408"), (GET % 1 + b"GET / HTTP/1.1\r\nA", b"408")]
)
def test_a_head_that_never_ends_is_given_up(sent: bytes, status: bytes) -> None:
    async def test(peer: Peer) -> None:
        peer.writer.write(sent)
        if sent.startswith(GET % 1):
            await peer.received(1)
            peer.waiting[0].respond(200)
        answer = await peer.reader.read()
        assert status in answer
        assert bool(answer) == bool(status)

    run(test, head_seconds=0.05)


def test_an_idle_connection_that_has_asked_before_may_stay() -> None:
    async def test(peer: Peer) -> None:
        for number in (1, 2):
            peer.writer.write(GET % number)
            await peer.received(number)
            await asyncio.sleep(0.1)
            peer.waiting[-1].respond(200)
            assert b"200 OK" in await peer.reader.readuntil(b"\r\n\r\n")

    run(test, head_seconds=0.05)


def test_an_answer_to_head_has_no_body() -> None:
    async def test(peer: Peer) -> None:
        peer.writer.write(b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n")
        await peer.received(1)
        peer.waiting[0].respond(200, (b"body",))
        answer = await peer.reader.read()
        assert b"Content-Length: 4\r\n" in answer
        assert answer.endswith(b"\r\n\r\n")

    run(test)
