"""Reads HTTP/1.1 answers from a connection, piece by piece."""

from __future__ import annotations

HEAD_END = b"\r\n\r\n"


class ResponseReader:
    """Feed it bytes until it says that the answer is complete; then read `status`, `body`, `keep_alive`.

    Bodies come with a Content-Length or in chunks. Raises ValueError for anything that is not an HTTP answer.
    """

    __slots__ = ("_body_at", "_buffer", "_chunked", "_length", "keep_alive", "status")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the last answer."""
        self._buffer = bytearray()
        self._body_at = 0
        self._length = 0
        self._chunked = False
        self.status = 0
        self.keep_alive = True

    def feed(self, data: bytes) -> bool:
        """Take the next bytes; True once the answer is complete."""
        self._buffer += data
        if not self._body_at and not self._read_head():
            return False
        if self._chunked:
            return self._dechunk() is not None
        return len(self._buffer) - self._body_at >= self._length

    @property
    def body(self) -> bytes:
        """The body of a complete answer."""
        if self._chunked:
            return self._dechunk() or b""
        return bytes(self._buffer[self._body_at : self._body_at + self._length])

    def _read_head(self) -> bool:
        end = self._buffer.find(HEAD_END)
        if end < 0:
            return False
        head = bytes(self._buffer[:end]).lower()
        if not head.startswith(b"http/1."):
            raise ValueError(f"not an HTTP answer: {head[:40]!r}")
        self.status = int(head[9:12])
        self._body_at = end + len(HEAD_END)
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name == b"content-length":
                self._length = int(value)
            elif name == b"transfer-encoding":
                self._chunked = b"chunked" in value
            elif name == b"connection":
                self.keep_alive = b"close" not in value
        return True

    def _dechunk(self) -> bytes | None:
        """The joined chunks, or None while the last one is not there yet."""
        parts: list[bytes] = []
        at = self._body_at
        while (line_end := self._buffer.find(b"\r\n", at)) >= 0:
            size = int(self._buffer[at:line_end].split(b";")[0], 16)
            at = line_end + 2
            if len(self._buffer) < at + size + 2:
                return None
            if size == 0:
                return b"".join(parts)
            parts.append(bytes(self._buffer[at : at + size]))
            at += size + 2
        return None
