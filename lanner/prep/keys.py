"""Raw categorical values → canonical int64 keys, the same for a column of a file and for one request.

| raw | values taken | key |
|---|---|---|
| `hex` | texts of 1 to 8 hexadecimal digits, integers 0..2^32-1 | the unsigned value (uint32) |
| `int` | decimal texts (`-` and digits), integers and booleans, all within 64 bits with sign | the value |
| `string` | texts (or UTF-8 bytes) | XXH64, seed 0, of the UTF-8 bytes, as int64 |

None, NaN and the empty text are missing. Nothing else is guessed: floating-point ids are refused, since beyond 2^53
they have already been rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lanner.errors import DataError, SchemaError
from lanner.kernels import parallel
from lanner.kernels.hashing import parse, xxh64
from lanner.prep.texts import as_arrow, is_text, null_mask, plain_texts, text_buffers
from lanner.schema import Raw

Values: TypeAlias = "Sequence[Any] | np.ndarray | pa.Array | pa.ChunkedArray"
"""One raw column: a Python sequence, a NumPy array or Arrow data."""

EXPECTED = {
    "hex": "1 to 8 hexadecimal digits",
    "int": "an integer of 64 bits with sign",
    "string": "a text",
}
_GRAIN = 1 << 13
_LARGEST_HEX = 2**32 - 1


@dataclass(slots=True)
class Scalars:
    """n values: `keys` (int64, or uint32 for hex), masks `missing` and `bad` (bool [n]), texts where asked for.

    A bad value is one that its raw kind does not allow; its key means nothing.
    """

    keys: np.ndarray
    missing: np.ndarray
    bad: np.ndarray
    texts: pa.Array | None = None


def plain(value: Any) -> Any:
    """A value of any container as the Python object that people know, for messages."""
    if isinstance(value, pa.Scalar):
        return value.as_py()
    return value.item() if isinstance(value, np.generic) else value


def scalar_keys(raw: Raw, values: Values, column: str, keep_texts: bool = False) -> Scalars:
    """Keys of the values of one column (a flat one).

    Raises DataError naming `column` where the type of the whole column is wrong; single bad values are marked.
    """
    if isinstance(values, list | tuple) or (isinstance(values, np.ndarray) and values.dtype.kind in "OUS"):
        values = _typed(raw, values, column)
    array = as_arrow(values)
    if pa.types.is_dictionary(array.type) and not is_text(array.type):
        array = array.dictionary_decode()
    if is_text(array.type):
        array = plain_texts(array)
        kept = array if keep_texts and raw == "string" else None
        return _from_texts(raw, *text_buffers(array), null_mask(array), kept)
    return _from_numbers(raw, array, column)


@lru_cache(maxsize=1024)
def logged_key(raw: Raw, value: int | str) -> int:
    """The key of a value named in a schema; raises SchemaError where it is none of the raw kind."""
    found = scalar_keys(raw, [str(value) if raw == "string" else value], "schema")
    if found.bad[0] or found.missing[0]:
        raise SchemaError(f"{value!r} is no {raw} value: expected {EXPECTED[raw]}")
    return int(found.keys[0])


def _from_texts(
    raw: Raw, data: np.ndarray, offsets: np.ndarray, missing: np.ndarray, texts: pa.Array | None
) -> Scalars:
    count, bad = len(missing), np.zeros(len(missing), np.bool_)
    if raw == "string":
        keys = xxh64(data, offsets).view(np.int64)
        np.logical_or(missing, offsets[1:] == offsets[:-1], out=missing)
        return Scalars(keys, missing, bad, texts)
    keys = np.empty(count, np.uint32 if raw == "hex" else np.int64)
    kernel = parse.hex_keys if raw == "hex" else parse.int_keys
    parallel.run(kernel, count, data, offsets, keys, missing, bad, grain=_GRAIN)
    return Scalars(keys, missing, bad)


def _from_numbers(raw: Raw, array: pa.Array, column: str) -> Scalars:
    kind = array.type
    if pa.types.is_null(kind) or pa.types.is_floating(kind):
        present = np.flatnonzero(~np.isnan(array.cast(pa.float64()).to_numpy(zero_copy_only=False)))
        if len(present):
            row, value = int(present[0]), array[int(present[0])].as_py()
            hint = "floating-point ids are refused, they are rounded beyond 2^53"
            raise DataError(f"column {column!r}, row {row}: {value!r} is not {EXPECTED[raw]} ({hint})")
        return _from_integers(raw, np.zeros(len(array), np.int64), np.ones(len(array), np.bool_))
    if raw == "string" or not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"column {column!r} is {kind}, expected {EXPECTED[raw]} (the schema says raw: {raw})")
    missing = null_mask(array)
    whole = pc.fill_null(array, False if pa.types.is_boolean(kind) else 0)
    if pa.types.is_uint64(kind):
        unsigned = whole.to_numpy()
        scalars = _from_integers(raw, unsigned.view(np.int64), missing)
        scalars.bad |= unsigned > (_LARGEST_HEX if raw == "hex" else 2**63 - 1)
        return scalars
    return _from_integers(raw, whole.cast(pa.int64()).to_numpy(), missing)


def _from_integers(raw: Raw, values: np.ndarray, missing: np.ndarray) -> Scalars:
    if raw == "int":
        return Scalars(values, missing, np.zeros(len(values), np.bool_))
    return Scalars(values.astype(np.uint32), missing, (values < 0) | (values > _LARGEST_HEX))


def _typed(raw: Raw, values: Sequence[Any] | np.ndarray, column: str) -> pa.Array | np.ndarray:
    """Python values as texts or, where all are integers of 64 bits, as an int64 array."""
    if raw != "string" and len(values) and all(type(value) is int and -(2**63) <= value < 2**63 for value in values):
        return np.array(values, np.int64)
    try:
        return pa.array(values, pa.string(), from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):  # not texts alone
        encoded = [_as_bytes(raw, value, column, row) for row, value in enumerate(values)]
        return pa.array(encoded, pa.binary()).cast(pa.string())


def _as_bytes(raw: Raw, value: Any, column: str, row: int) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"column {column!r}, row {row}: {value!r} is not valid Unicode") from error
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode().encode()
        except UnicodeDecodeError as error:
            raise DataError(f"column {column!r}, row {row}: {bytes(value)!r} is not UTF-8") from error
    if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
        return b""
    if isinstance(value, int | np.integer | np.bool_) and raw != "string":
        number = int(value)
        return f"{number:x}".encode() if raw == "hex" else str(number).encode()
    raise DataError(f"column {column!r}, row {row}: {plain(value)!r} ({type(value).__name__}) is not {EXPECTED[raw]}")
