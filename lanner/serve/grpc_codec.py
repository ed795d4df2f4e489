"""Inference over gRPC: raw and typed tensor contents."""

from __future__ import annotations

from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2

from lanner.serve import bytelist
from lanner.serve.datatypes import NUMERIC, numeric
from lanner.serve.failure import RequestError, unsupported
from lanner.serve.http_codec import from_bytes
from lanner.serve.request import Output, Request, Scores, Tensor, element_count

_CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def read(message: Any) -> Request:
    """The request in a ModelInferRequest; RequestError naming the part that is malformed."""
    request = Request(message.model_name, message.model_version, message.id)
    if "timeout" in message.parameters:
        request.timeout = _timeout(message.parameters["timeout"])
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise RequestError(f"{len(raw)} raw_input_contents for {len(message.inputs)} inputs")
    for index, given in enumerate(message.inputs):
        if "shared_memory_region" in given.parameters:
            raise unsupported("shared memory")
        name, datatype, shape = given.name, given.datatype, tuple(given.shape)
        count = element_count(name, shape)
        if raw:
            request.add(from_bytes(name, datatype, shape, count, raw[index]))
        else:
            request.add(_typed(name, datatype, shape, count, given.contents))
    if message.outputs:
        request.outputs = [_output(output) for output in message.outputs]
    return request


def write(request: Request, scores: Scores) -> Any:
    """The ModelInferResponse, with raw contents."""
    response = service_pb2.ModelInferResponse(model_name=request.model, model_version=scores.version, id=request.id)
    output = response.outputs.add(name="score", datatype="FP32")
    output.shape.extend(scores.values.shape)
    response.raw_output_contents.append(scores.values.tobytes())
    return response


def _output(given: Any) -> Output:
    if "classification" in given.parameters:
        raise unsupported("the classification extension")
    if "shared_memory_region" in given.parameters:
        raise unsupported("shared memory")
    return Output(given.name)


def _timeout(parameter: Any) -> int:
    value = getattr(parameter, parameter.WhichOneof("parameter_choice") or "int64_param")
    if type(value) is not int or value < 0:
        raise RequestError(f"parameter 'timeout' is {value!r}, expected microseconds")
    return value


def _typed(name: str, datatype: str, shape: tuple[int, ...], count: int, contents: Any) -> Tensor:
    """A tensor given as numbers or strings in the field that belongs to its type."""
    if datatype != "BYTES":
        numeric(name, datatype)
    if datatype not in _CONTENTS:
        raise RequestError(f"input '{name}': {datatype} must be given in raw_input_contents")
    filled = [field.name for field, _ in contents.ListFields()]
    if filled not in ([], [_CONTENTS[datatype]]):
        raise RequestError(f"input '{name}': {datatype} belongs in {_CONTENTS[datatype]}, found {', '.join(filled)}")
    values = getattr(contents, _CONTENTS[datatype])
    if len(values) != count:
        raise RequestError(f"input '{name}': {len(values)} elements of data, but shape {list(shape)} takes {count}")
    if datatype == "BYTES":
        return Tensor(name, datatype, shape, bytelist.from_list(name, list(values)))
    try:
        array = np.array(values, dtype=NUMERIC[datatype])
    except OverflowError as error:
        raise RequestError(f"input '{name}': a number in the data does not fit {datatype}: {error}") from error
    return Tensor(name, datatype, shape, array.reshape(shape))
