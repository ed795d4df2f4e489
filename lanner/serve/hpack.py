"""HPACK (RFC 7541): the compressed headers of HTTP/2. Decoding in full; encoding only as literals."""

from __future__ import annotations

from collections import deque

TABLE_SIZE = 4096
"""Bytes of the dynamic table: the protocol's default, which this side never changes."""

_NAMES = """
:authority|:method=GET|:method=POST|:path=/|:path=/index.html|:scheme=http|:scheme=https|:status=200|:status=204
:status=206|:status=304|:status=400|:status=404|:status=500|accept-charset|accept-encoding=gzip, deflate
accept-language|accept-ranges|accept|access-control-allow-origin|age|allow|authorization|cache-control
content-disposition|content-encoding|content-language|content-length|content-location|content-range|content-type
cookie|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since
last-modified|link|location|max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh|retry-after
server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate
"""
_ENTRIES = _NAMES.strip().replace("\n", "|").encode().split(b"|")
_STATIC = tuple((name, value) for name, _, value in (entry.partition(b"=") for entry in _ENTRIES))
"""The static table (appendix A), from index 1 on."""

# The Huffman code is canonical: the lengths of the codes say it all. Symbols by length, from the RFC's appendix B.
_SYMBOLS: dict[int, bytes] = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\0$@[]~",
    14: b"^}",
    15: b"<`{",
    19: bytes((92, 195, 208)),
    20: bytes((128, 130, 131, 162, 184, 194, 224, 226)),
    21: bytes((153, 161, 167, 172, 176, 177, 179, 209, 216, 217, 227, 229, 230)),
    22: bytes(
        (129, 132, 133, 134, 136, 146, 154, 156, 160, 163, 164, 169, 170, 173, 178, 181, 185, 186, 187, 189, 190, 196,
         198, 228, 232, 233)
    ),
    23: bytes(
        (1, 135, 137, 138, 139, 140, 141, 143, 147, 149, 150, 151, 152, 155, 157, 158, 165, 166, 168, 174, 175, 180,
         182, 183, 188, 191, 197, 231, 239)
    ),
    24: bytes((9, 142, 144, 145, 148, 159, 171, 206, 215, 225, 236, 237)),
    25: bytes((199, 207, 234, 235)),
    26: bytes((192, 193, 200, 201, 202, 205, 210, 213, 218, 219, 238, 240, 242, 243, 255)),
    27: bytes((203, 204, 211, 212, 214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250, 251, 252, 253, 254)),
    28: bytes(
        (2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27, 28, 29, 30, 31, 127, 220, 249)
    ),
    30: bytes((10, 13, 22)),
}  # fmt: skip


def _codes() -> dict[tuple[int, int], int]:
    """Symbol by (length, code)."""
    found, code, before = {}, 0, 0
    for length, symbols in _SYMBOLS.items():
        code <<= length - before
        before = length
        for symbol in symbols:
            found[length, code] = symbol
            code += 1
    return found


_CODES = _codes()


class HpackError(ValueError):
    """A header block that does not follow the format; the connection cannot go on."""


class Decoder:
    """Decodes the header blocks of one connection, in order."""

    def __init__(self) -> None:
        self._dynamic: deque[tuple[bytes, bytes]] = deque()
        self._size, self._limit = 0, TABLE_SIZE

    def decode(self, block: bytes) -> list[tuple[bytes, bytes]]:
        """Names and values of a block. Raises HpackError."""
        found: list[tuple[bytes, bytes]] = []
        at = 0
        try:
            while at < len(block):
                first = block[at]
                if first & 0x80:
                    index, at = _integer(block, at, 7)
                    found.append(self._entry(index))
                elif first & 0xE0 == 0x20:
                    size, at = _integer(block, at, 5)
                    self._resize(size)
                else:
                    indexed = bool(first & 0x40)
                    header, at = self._literal(block, at, 6 if indexed else 4)
                    found.append(header)
                    if indexed:
                        self._add(header)
        except IndexError:
            raise HpackError("header block is cut off") from None
        return found

    def _literal(self, block: bytes, at: int, prefix: int) -> tuple[tuple[bytes, bytes], int]:
        index, at = _integer(block, at, prefix)
        if index:
            name = self._entry(index)[0]
        else:
            name, at = _string(block, at)
        value, at = _string(block, at)
        return (name, value), at

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        if 0 < index <= len(_STATIC):
            return _STATIC[index - 1]
        if len(_STATIC) < index <= len(_STATIC) + len(self._dynamic):
            return self._dynamic[index - len(_STATIC) - 1]
        raise HpackError(f"header index {index} does not exist")

    def _add(self, header: tuple[bytes, bytes]) -> None:
        self._dynamic.appendleft(header)
        self._size += _cost(header)
        self._evict()

    def _resize(self, size: int) -> None:
        if size > TABLE_SIZE:
            raise HpackError(f"dynamic table of {size} bytes, allowed are {TABLE_SIZE}")
        self._limit = size
        self._evict()

    def _evict(self) -> None:
        while self._size > self._limit:
            self._size -= _cost(self._dynamic.pop())


def encode(*headers: tuple[bytes, bytes]) -> bytes:
    """A header block of literals that no table remembers."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in headers)


def _cost(header: tuple[bytes, bytes]) -> int:
    return len(header[0]) + len(header[1]) + 32


def _text(data: bytes) -> bytes:
    if len(data) < 127:
        return bytes((len(data),)) + data
    rest, length = len(data) - 127, bytearray((127,))
    while rest >= 128:
        length.append(rest & 127 | 128)
        rest >>= 7
    length.append(rest)
    return bytes(length) + data


def _integer(block: bytes, at: int, prefix: int) -> tuple[int, int]:
    value = block[at] & ((1 << prefix) - 1)
    at += 1
    if value < (1 << prefix) - 1:
        return value, at
    for shift in range(0, 28, 7):
        value += (block[at] & 127) << shift
        at += 1
        if not block[at - 1] & 128:
            return value, at
    raise HpackError("header integer is too large")


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    coded = bool(block[at] & 0x80)
    length, at = _integer(block, at, 7)
    if at + length > len(block):
        raise HpackError("header block is cut off")
    data = block[at : at + length]
    return (_huffman(data) if coded else data), at + length


def _huffman(data: bytes) -> bytes:
    found, code, length = bytearray(), 0, 0
    for byte in data:
        for bit in range(7, -1, -1):
            code, length = code << 1 | byte >> bit & 1, length + 1
            symbol = _CODES.get((length, code))
            if symbol is not None:
                found.append(symbol)
                code = length = 0
            elif length >= 30:
                raise HpackError("header text holds no Huffman code")
    if length > 7 or code != (1 << length) - 1:
        raise HpackError("header text ends within a Huffman code")
    return bytes(found)
