"""BYTES tensors on the wire: each element is its length (4 bytes, little-endian) and then its bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from lanner.serve.failure import RequestError

_TOO_SHORT, _TOO_LONG = -1, -2
_MOST = 2**31 - 1


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _split(wire: np.ndarray, offsets: np.ndarray, data: np.ndarray) -> int:
    """Copy the elements of `wire` one after another into `data`; return the bytes they take, or what is wrong."""
    at, end = np.int64(0), np.int64(wire.size)
    filled = np.int64(0)
    for element in range(offsets.size - 1):
        if at + 4 > end:
            return _TOO_SHORT
        length = np.int64(wire[at]) | np.int64(wire[at + 1]) << 8 | np.int64(wire[at + 2]) << 16
        length |= np.int64(wire[at + 3]) << 24
        at += 4
        if at + length > end:
            return _TOO_SHORT
        for byte in range(length):
            data[filled + byte] = wire[at + byte]
        at += length
        filled += length
        offsets[element + 1] = filled
    return filled if at == end else _TOO_LONG


def decode(name: str, wire: bytes | memoryview, count: int) -> pa.Array:
    """`count` elements as an Arrow string array; RequestError when sizes disagree or the text is not UTF-8."""
    raw = np.frombuffer(wire, dtype=np.uint8)
    if raw.size > _MOST:
        raise RequestError(f"input '{name}': {raw.size} bytes of BYTES data, at most {_MOST} are read")
    if count * 4 > raw.size:  # checked before anything of that size is allocated
        raise RequestError(f"input '{name}': {raw.size} bytes are too few for {count} BYTES elements")
    offsets, data = np.zeros(count + 1, dtype=np.int32), np.empty(max(raw.size - 4 * count, 0), dtype=np.uint8)
    filled = _split(raw, offsets, data)
    if filled < 0:
        problem = "end before" if filled == _TOO_SHORT else "go on after"
        raise RequestError(f"input '{name}': the BYTES data {problem} the last of {count} elements")
    return _strings(name, pa.BinaryArray.from_buffers(pa.binary(), count, [None, _buffer(offsets), _buffer(data)]))


def from_list(name: str, values: Sequence[bytes]) -> pa.Array:
    """Elements given one by one (gRPC's typed contents) as an Arrow string array."""
    return _strings(name, pa.array(values, type=pa.binary()))


def encode(values: Sequence[str]) -> bytes:
    """The wire form of `values`."""
    parts: list[bytes] = []
    for text in values:
        data = text.encode()
        parts += (struct.pack("<I", len(data)), data)
    return b"".join(parts)


def _buffer(values: np.ndarray) -> Any:
    return pa.py_buffer(values)


def _strings(name: str, values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise RequestError(f"input '{name}': BYTES elements must be UTF-8 text: {error}") from error
