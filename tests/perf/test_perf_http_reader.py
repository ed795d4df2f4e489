"""Answers are read whole, however the network cuts them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.perf.http_reader import ResponseReader

BODY = bytes(range(256)) * 3
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: x\r\ncontent-LENGTH: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = (
    b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    + b"".join(b"%x\r\n" % len(part) + part + b"\r\n" for part in (BODY[:100], BODY[100:101], BODY[101:]))
    + b"0\r\n\r\n"
)


@given(st.sampled_from([PLAIN, CHUNKED]), st.lists(st.integers(0, 1000), max_size=8))
def test_any_cut_gives_the_same_answer(answer: bytes, cuts: list[int]) -> None:
    reader = ResponseReader()
    edges = sorted({0, len(answer), *(cut for cut in cuts if cut < len(answer))})
    complete = [reader.feed(answer[low:high]) for low, high in pairwise(edges)]
    assert complete == [False] * (len(complete) - 1) + [True]
    assert reader.body == BODY
    assert (reader.status, reader.keep_alive) == ((200, True) if answer is PLAIN else (503, False))


def test_a_reader_is_reused() -> None:
    reader = ResponseReader()
    assert reader.feed(CHUNKED)
    reader.reset()
    assert reader.feed(b"HTTP/1.1 204 None\r\nContent-Length: 0\r\n\r\n")
    assert (reader.status, reader.body, reader.keep_alive) == (204, b"", True)


@pytest.mark.parametrize("answer", [b"SSH-2.0\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_other_protocols_are_refused(answer: bytes) -> None:
    with pytest.raises(ValueError):
        ResponseReader().feed(answer)
