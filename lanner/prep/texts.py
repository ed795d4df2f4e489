"""Texts as Arrow keeps them: bytes end to end and offsets, the form the kernels read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lanner.errors import DataError

_TEXT_TYPES = frozenset({"string", "large_string", "string_view", "binary", "large_binary", "binary_view"})
_EMPTY = np.zeros(1, np.uint8)


def is_text(kind: pa.DataType) -> bool:
    """True for the Arrow types whose values are texts (a dictionary of texts too)."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return str(kind) in _TEXT_TYPES


def plain_texts(array: pa.Array) -> pa.Array:
    """`array` as string or large_string: dictionaries unpacked, views copied, bytes checked to be UTF-8.

    Raises DataError when bytes are not UTF-8.
    """
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return array
    if pa.types.is_dictionary(kind):
        return plain_texts(array.dictionary_decode())
    try:
        return array.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise DataError(f"bytes that are not UTF-8 where texts are expected: {error}") from error


def text_buffers(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The bytes (uint8) and offsets (int32 or int64 [n + 1]) of an array of `plain_texts`; no copy is made.

    Where the array has nulls their offsets mean nothing.
    """
    width = np.int64 if pa.types.is_large_string(array.type) else np.int32
    _, offsets, data = array.buffers()
    if offsets is None:
        return _EMPTY, np.zeros(len(array) + 1, width)
    start = array.offset
    view = np.frombuffer(offsets, width)[start : start + len(array) + 1] if offsets.size else np.zeros(1, width)
    return (np.frombuffer(data, np.uint8) if data is not None and data.size else _EMPTY), view


def as_arrow(values: Any) -> pa.Array:
    """One Arrow array of Arrow data (chunked or not) or a NumPy array of numbers."""
    if isinstance(values, pa.ChunkedArray):
        whole = values.unify_dictionaries().combine_chunks()
        return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
    return values if isinstance(values, pa.Array) else pa.array(values)


def null_mask(array: pa.Array) -> np.ndarray:
    """True where null, as a fresh bool array [n]."""
    if not array.null_count:
        return np.zeros(len(array), np.bool_)
    return np.array(array.is_null())
