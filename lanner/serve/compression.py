"""Compressed bodies: gzip and deflate, with a limit on what they unpack to."""

from __future__ import annotations

import gzip
import zlib

from lanner.serve.failure import RequestError

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
WORTH = 1024
"""Bodies below this many bytes are not compressed."""


def unpack(body: bytes, encoding: str, limit: int) -> bytes:
    """The body behind `Content-Encoding`; RequestError when it is damaged, too large or of an unknown kind."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise RequestError(f"Unsupported Content-Encoding: {encoding}")
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        data = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise RequestError(f"the {encoding} body is damaged: {error}") from error
    if len(data) > limit:
        raise too_large(limit)
    if not unpacker.eof or unpacker.unused_data:
        raise RequestError(
            f"the {encoding} body is damaged: {'it goes on after its end' if unpacker.eof else 'cut off'}"
        )
    return data


def pack(body: bytes, accepted: str) -> tuple[bytes, str]:
    """`body` compressed as `Accept-Encoding` allows, and the encoding's name ("" when it is left as it is)."""
    names = {part.split(";")[0].strip().lower() for part in accepted.split(",")}
    if len(body) < WORTH:
        return body, ""
    if "gzip" in names:
        return gzip.compress(body, 1, mtime=0), "gzip"
    if "deflate" in names:
        return zlib.compress(body, 1), "deflate"
    return body, ""


def too_large(limit: int) -> RequestError:
    return RequestError(
        f"the request body exceeds the maximum allowed value of {limit} bytes; use --http-max-input-size to allow more"
    )
