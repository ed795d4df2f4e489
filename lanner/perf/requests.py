"""Requests built ahead of time, as the bytes that go on the wire, so that sending costs next to nothing."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lanner.errors import ConfigError
from lanner.export.signature import PADDING
from lanner.perf import generate
from lanner.perf.generate import Tensor, Tensors
from lanner.perf.model import Model
from lanner.perf.settings import Settings

POOL_BYTES = 64 << 20
"""Memory for the pool of distinct requests, which the load then repeats."""

POOL_REQUESTS = (8, 2048)
"""At least and at most so many distinct requests."""


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of one request, in the binary form that both protocols share."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes


def build(model: Model, settings: Settings) -> list[bytes]:
    """The pool of requests for the chosen protocol; the same settings give the same bytes.

    Raises ConfigError when the model cannot take such requests.
    """
    model.check_batch(settings.batch)
    encode = _http if settings.protocol == "http" else _grpc
    return [encode(model, settings, parts) for parts in split(make_tensors(model, settings), model, settings.batch)]


def make_tensors(model: Model, settings: Settings) -> Tensors:
    """Input rows for the whole pool, drawn as the settings say."""
    rng = np.random.default_rng(settings.seed)
    if model.schema is None:
        if settings.data or settings.form == "raw":
            raise ConfigError(f"model {model.name!r} carries no schema: --data and --form raw need one")
        bounds = (settings.low, settings.high)

        def sample(rows: int) -> Tensors:
            return generate.from_metadata(model.inputs, rows, rng, bounds, settings.ranges, settings.shapes)
    elif settings.data:
        from lanner.perf.rows import DatasetRows

        sample = DatasetRows(settings.data, model.schema, settings.form, rng).sample
    else:
        schema = model.schema
        make = generate.raw if settings.form == "raw" else generate.encoded

        def sample(rows: int) -> Tensors:
            return make(schema, rows, rng, settings.skew)

    probe = sample(min(64, settings.batch))
    _check_form(model, probe, settings)
    return generate.conform(sample(pool_size(probe, settings.batch) * settings.batch), model.inputs)


def pool_size(probe: Tensors, batch: int) -> int:
    """How many distinct requests of `batch` rows to hold, judged by a few rows of their tensors."""
    rows = next((len(tensor.values) for tensor in probe.values()), 1)
    size = sum(len(serialise(tensor.values)) for tensor in probe.values()) / rows * batch
    return int(np.clip(POOL_BYTES / max(size, 1.0), *POOL_REQUESTS))


def split(tensors: Tensors, model: Model, batch: int) -> Iterator[list[Part]]:
    """Cut the rows into requests of `batch` rows."""
    total = min((len(tensor.values) for tensor in tensors.values()), default=0)
    for start in range(0, total - batch + 1, batch):
        yield [_part(name, tensor, start, batch, model.batched) for name, tensor in tensors.items()]


def _part(name: str, tensor: Tensor, start: int, batch: int, batched: bool) -> Part:
    values = tensor.values[start : start + batch]
    if tensor.ragged:
        used = np.flatnonzero((values != PADDING).any(axis=0))
        values = values[:, : int(used[-1]) + 1 if used.size else 1]
    if not batched:
        values = values[0]
    return Part(name, tensor.datatype, tuple(values.shape), serialise(values))


def serialise(values: npt.NDArray[np.generic]) -> bytes:
    """Row-major little-endian bytes; texts as a 4-byte length and their bytes each."""
    if values.dtype == np.object_:
        texts: list[bytes] = values.ravel().tolist()
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return np.ascontiguousarray(values).tobytes()


def _check_form(model: Model, tensors: Tensors, settings: Settings) -> None:
    names = {tensor.name for tensor in model.inputs}
    if missing := sorted(set(tensors) - names):
        raise ConfigError(
            f"model {model.name!r} has no input {missing[0]!r} for --form {settings.form}; "
            f"it has {', '.join(sorted(names)) or 'none'}"
        )


def infer_path(name: str, version: str) -> str:
    """The HTTP path below which a model's calls lie."""
    return f"/v2/models/{name}/versions/{version}" if version else f"/v2/models/{name}"


def _http(model: Model, settings: Settings, parts: list[Part]) -> bytes:
    """A whole HTTP/1.1 request with the binary tensor extension, all outputs asked for in binary."""
    inputs = [
        {
            "name": part.name,
            "shape": part.shape,
            "datatype": part.datatype,
            "parameters": {"binary_data_size": len(part.data)},
        }
        for part in parts
    ]
    header = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}, separators=(",", ":")).encode()
    length = len(header) + sum(len(part.data) for part in parts)
    head = (
        f"POST {infer_path(model.name, settings.version)}/infer HTTP/1.1\r\nHost: {settings.url}\r\n"
        f"Content-Type: application/octet-stream\r\nInference-Header-Content-Length: {len(header)}\r\n"
        f"Content-Length: {length}\r\n\r\n"
    )
    return b"".join((head.encode(), header, *(part.data for part in parts)))


def _grpc(model: Model, settings: Settings, parts: list[Part]) -> bytes:
    """A serialised `ModelInferRequest`."""
    from tritonclient.grpc import service_pb2

    message = service_pb2.ModelInferRequest(model_name=model.name, model_version=settings.version)
    for part in parts:
        message.inputs.add(name=part.name, datatype=part.datatype, shape=part.shape)
        message.raw_input_contents.append(part.data)
    return bytes(message.SerializeToString())
