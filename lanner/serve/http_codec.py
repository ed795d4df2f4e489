"""Inference over HTTP: JSON, and the binary tensor data extension in both directions."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from lanner.serve import bytelist
from lanner.serve.datatypes import NUMERIC, numeric
from lanner.serve.failure import RequestError, unsupported
from lanner.serve.request import Output, Request, Scores, Tensor, element_count

LENGTH_HEADER = "Inference-Header-Content-Length"
_MOST_DIGITS = 18
_JSON_TYPES: dict[str, set[type]] = {"B": {bool}, "I": {int}, "U": {int}, "F": {int, float}}


def header_length(text: str | None, body: int) -> int:
    """Bytes of the JSON part of a body of `body` bytes; RequestError when the header's value cannot be that."""
    if text is None:
        return body
    length = decimal(text)
    if length is None or length > body:
        raise RequestError(f"{LENGTH_HEADER} is {text[:40]!r}, expected a number up to the body's {body} bytes")
    return length


def decimal(text: str) -> int | None:
    """The number of bytes a header gives; None when it is no number, or larger than any body."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def read(model: str, version: str, body: bytes, length: str | None) -> Request:
    """The request in `body`; RequestError naming the part that is malformed.

    Numeric tensors in binary form are views of `body`.
    """
    json_length = header_length(length, len(body))
    head = _parse(body if json_length == len(body) else memoryview(body)[:json_length])
    parameters = _mapping(head, "parameters")
    request = Request(
        model,
        version,
        _text(head, "id"),
        binary=parameters.get("binary_data_output") is True,
        timeout=_timeout(parameters),
    )
    at = json_length
    for given in _list(head, "inputs"):
        size = _mapping(given, "parameters").get("binary_data_size")
        if size is None:
            request.add(_from_json(given))
            continue
        if type(size) is not int or not 0 <= size <= len(body) - at:
            name = given.get("name")
            raise RequestError(f"input '{name}': binary_data_size is {size}, but {len(body) - at} bytes are left")
        request.add(_from_binary(given, memoryview(body)[at : at + size]))
        at += size
    if at != len(body):
        raise RequestError(f"{len(body) - at} bytes follow the last input's binary data")
    if "outputs" in head:
        request.outputs = [_output(given) for given in _list(head, "outputs")]
    return request


def write(request: Request, scores: Scores) -> tuple[list[bytes], int | None]:
    """The body of an answer in parts, and the length of its JSON part when binary data follows."""
    head: dict[str, Any] = {"model_name": request.model, "model_version": scores.version}
    if request.id:
        head["id"] = request.id
    binary = request.binary if request.outputs is None else any(output.binary for output in request.outputs)
    values = scores.values
    described: dict[str, Any] = {"name": "score", "datatype": "FP32", "shape": list(values.shape)}
    if request.outputs == []:
        return [orjson.dumps({**head, "outputs": []})], None
    if binary:
        data = values.tobytes()
        text = orjson.dumps({**head, "outputs": [{**described, "parameters": {"binary_data_size": len(data)}}]})
        return [text, data], len(text)
    described["data"] = np.ascontiguousarray(values).reshape(-1)
    return [orjson.dumps({**head, "outputs": [described]}, option=orjson.OPT_SERIALIZE_NUMPY)], None


def _parse(text: bytes | memoryview) -> dict[str, Any]:
    try:
        head = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"failed to parse the request JSON buffer: {error}") from error
    if not isinstance(head, dict):
        raise RequestError("the request JSON must be an object")
    return head


def _mapping(given: dict[str, Any], key: str) -> dict[str, Any]:
    value = given.get(key)
    if value is not None and not isinstance(value, dict):
        raise RequestError(f"'{key}' must be an object")
    return value or {}


def _list(given: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = given.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise RequestError(f"the request JSON must hold '{key}', a list of objects")
    return value


def _text(given: dict[str, Any], key: str) -> str:
    value = given.get(key, "")
    if not isinstance(value, str):
        raise RequestError(f"'{key}' must be a string")
    return value


def _timeout(parameters: dict[str, Any]) -> int:
    value = parameters.get("timeout", 0)
    if type(value) is not int or value < 0:
        raise RequestError(f"parameter 'timeout' is {value!r}, expected microseconds")
    return value


def _output(given: dict[str, Any]) -> Output:
    parameters = _mapping(given, "parameters")
    if parameters.get("classification"):
        raise unsupported("the classification extension")
    if "shared_memory_region" in parameters:
        raise unsupported("shared memory")
    return Output(_text(given, "name"), parameters.get("binary_data") is True)


def _head(given: dict[str, Any]) -> tuple[str, str, tuple[int, ...], int]:
    name, datatype, shape = _text(given, "name"), _text(given, "datatype"), given.get("shape")
    if not name or not datatype or not isinstance(shape, list):
        raise RequestError(f"input '{name}': an input must have 'name', 'datatype' and 'shape'")
    if "shared_memory_region" in _mapping(given, "parameters"):
        raise unsupported("shared memory")
    return name, datatype, tuple(shape), element_count(name, tuple(shape))


def _from_binary(given: dict[str, Any], data: memoryview) -> Tensor:
    name, datatype, shape, count = _head(given)
    return from_bytes(name, datatype, shape, count, data)


def from_bytes(name: str, datatype: str, shape: tuple[int, ...], count: int, data: bytes | memoryview) -> Tensor:
    """A tensor from its wire form."""
    if datatype == "BYTES":
        return Tensor(name, datatype, shape, bytelist.decode(name, data, count))
    kind = numeric(name, datatype)
    if count * kind.itemsize != len(data):
        raise RequestError(
            f"input '{name}': {len(data)} bytes of data, but {datatype} of shape {list(shape)} "
            f"takes {count * kind.itemsize}"
        )
    return Tensor(name, datatype, shape, np.frombuffer(data, dtype=kind).reshape(shape))


def _from_json(given: dict[str, Any]) -> Tensor:
    name, datatype, shape, count = _head(given)
    data = given.get("data")
    if not isinstance(data, list):
        raise RequestError(f"input '{name}': neither 'data' nor 'binary_data_size' is given")
    flat = _flatten(name, data)
    if len(flat) != count:
        raise RequestError(f"input '{name}': {len(flat)} elements of data, but shape {list(shape)} takes {count}")
    if datatype == "BYTES":
        _require(name, datatype, flat, {str})
        return Tensor(name, datatype, shape, pa.array(flat, type=pa.string()))
    numeric(name, datatype)
    return Tensor(name, datatype, shape, _numbers(name, datatype, flat).reshape(shape))


def _flatten(name: str, data: list[Any]) -> list[Any]:
    while data and isinstance(data[0], list):
        if not all(isinstance(item, list) for item in data):
            raise RequestError(f"input '{name}': 'data' mixes lists and values")
        data = list(chain.from_iterable(data))
    return data


def _require(name: str, datatype: str, flat: list[Any], kinds: set[type]) -> None:
    for kind in set(map(type, flat)) - kinds:
        # A JSON integer of more than 64 bits arrives as a float, so it is refused here and never rounded.
        seen = next(value for value in flat if type(value) is kind)
        shown = repr(seen) if len(repr(seen)) < 60 else kind.__name__
        raise RequestError(f"input '{name}': {shown} in the data is no {datatype}")


def _numbers(name: str, datatype: str, flat: list[Any]) -> np.ndarray:
    letter = datatype[0]
    _require(name, datatype, flat, _JSON_TYPES[letter])
    try:
        with np.errstate(over="raise"):  # a number too large for FP32 must not become infinity
            return np.array(flat, dtype=NUMERIC[datatype])
    except (OverflowError, FloatingPointError) as error:
        raise RequestError(f"input '{name}': a number in the data does not fit {datatype}: {error}") from error
