"""A text file on any URI as blocks of whole lines, decompressed on the way."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from lanner import storage
from lanner.errors import DataError

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
BOM, UTF16 = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
LONGEST_LINE = 16 << 20
_PACKED_READ = 1 << 16


class BrokenFileError(Exception):
    """The file ends or breaks off where it must not; raised after the whole lines before the break."""


class _Unpacker:
    """Decompresses a stream of one or more gzip members or zstd frames."""

    def __init__(self, file: IO[bytes], kind: str) -> None:
        self._file, self._kind = file, kind
        self._decoder: Any = None  # None between members
        self._packed = b""
        self._plain = memoryview(b"")

    def _new_decoder(self) -> Any:
        if self._kind == "gzip":
            return zlib.decompressobj(wbits=31)
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj()

    def readinto(self, view: memoryview) -> int:
        """Fill `view` as far as one step gets; 0 at the end. Raises BrokenFileError."""
        while not self._plain:
            if not self._packed:
                self._packed = self._file.read(_PACKED_READ)
            if not self._packed:
                if self._decoder is not None:
                    raise BrokenFileError(f"the {self._kind} stream ends before its end mark (an incomplete download?)")
                return 0
            self._plain = memoryview(self._step())
        size = min(len(view), len(self._plain))
        view[:size] = self._plain[:size]
        self._plain = self._plain[size:]
        return size

    def _step(self) -> bytes:
        if self._decoder is None:
            self._packed = self._packed.lstrip(b"\0") if self._kind == "gzip" else self._packed  # tape padding
            if not self._packed:
                return b""
            self._decoder = self._new_decoder()
        try:
            plain: bytes = self._decoder.decompress(self._packed)
        except Exception as error:  # zlib.error, zstandard.ZstdError
            raise BrokenFileError(f"damaged {self._kind} data: {error}") from error
        self._packed = self._decoder.unused_data
        if self._decoder.eof:
            self._decoder = None
        return plain


def line_blocks(file: str, block_bytes: int, spare: int) -> Iterator[np.ndarray]:
    """Yield uint8 blocks of about `block_bytes` that end in a newline and `spare` more bytes.

    gzip and zstd are recognised by their first bytes, whatever the name; a byte-order mark is dropped; a last line
    without a newline gets one. Raises BrokenFileError for a cut or damaged file, after the whole lines before the
    break, and DataError for text in UTF-16 or with a line above 16 MiB.
    """
    with storage.open_file(file) as raw:
        head = raw.read(4)
        raw.seek(0)
        packed = "gzip" if head.startswith(GZIP) else "zstd" if head == ZSTD else None
        stream: Any = _Unpacker(raw, packed) if packed else raw
        first, carry, broken = True, b"", None
        while True:
            block = np.empty(max(block_bytes, 2 * len(carry)) + spare + 1, np.uint8)
            view = block.data
            view[: len(carry)] = carry
            try:
                filled = _fill(stream, view[: -spare - 1], len(carry))
            except BrokenFileError as error:
                broken, filled = error, error.args[1]
            ended = broken is not None or filled < len(block) - spare - 1
            begin = _text_start(file, block, filled) if first else 0
            end = _cut(block, filled)
            if ended and broken is None and end < filled:
                block[filled] = ord("\n")
                end = filled + 1
            if end > begin:
                yield block[begin : end + spare]
            first, carry = False, block[end:filled].tobytes() if end < filled else b""
            if broken is not None:
                raise BrokenFileError(broken.args[0])
            if ended:
                return
            if len(carry) > LONGEST_LINE:
                raise DataError(f"{file}: a line is longer than {LONGEST_LINE >> 20} MiB: is this text?")


def _fill(stream: Any, view: memoryview, at: int) -> int:
    """Read until `view` is full or the stream ends; returns how much of `view` is filled."""
    while at < len(view):
        try:
            size = stream.readinto(view[at:])
        except BrokenFileError as error:
            raise BrokenFileError(error.args[0], at) from error
        if not size:
            break
        at += size
    return at


def _text_start(file: str, block: np.ndarray, filled: int) -> int:
    head = block[: min(filled, 3)].tobytes()
    if head.startswith(UTF16):
        raise DataError(f"{os.fspath(file)}: text in UTF-16; expected UTF-8 or ASCII")
    return 3 if head == BOM else 0


def _cut(block: np.ndarray, filled: int) -> int:
    """Index just after the last newline among the first `filled` bytes, 0 when there is none."""
    window = 1 << 12
    end = filled
    while end > 0:
        begin = max(end - window, 0)
        found = np.flatnonzero(block[begin:end] == ord("\n"))
        if found.size:
            return begin + int(found[-1]) + 1
        end, window = begin, window * 4
    return 0
