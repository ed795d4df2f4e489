"""Small stub servers with Triton's endpoints, for the load generator's tests: a model that answers at once, fails or
freezes on demand, checks every id, and keeps Triton's statistics."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
import numpy as np
from google.protobuf import json_format
from tritonclient.grpc import service_pb2, service_pb2_grpc

from lanner.schema import Schema

SCHEMA = Schema.parse(
    {
        "labels": [{"name": "label"}],
        "dense": [{"name": "price"}, {"name": "age"}],
        "sparse": [
            {"name": "user", "raw": "string"},
            {"name": "item", "raw": "int", "encoder": {"kind": "identity", "size": 7}},
            {"name": "genres", "raw": "string", "hotness": None, "max_hotness": 4, "separator": "|"},
        ],
        "tables": [{"name": "user", "rows": 1000}, {"name": "item", "rows": 7}, {"name": "genres", "rows": 20}],
    }
)

INPUTS = {"dense": ("FP32", [-1, 2]), "ids": ("INT64", [-1, 2]), "genres.ids": ("INT64", [-1, -1])}
RAW_INPUTS = {"price": "FP64", "age": "FP64", "user": "BYTES", "item": "INT64", "genres": "BYTES"}


@dataclass
class Behaviour:
    """What the stub does: `decide(n)` gives the error text of its n-th request ('' = a good answer); `frozen()` is
    how many seconds it must still wait before it answers anything. A `plain` server lacks Triton's extensions."""

    decide: Callable[[int], str] = lambda n: ""
    frozen: Callable[[], float] = lambda: 0.0
    with_schema: bool = True
    plain: bool = False
    max_batch_size: int = 4096
    rows: int = 0
    failed: int = 0
    served: int = 0
    out_of_range: int = 0
    closed: bool = False
    bodies: list[bytes] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def infer(self, tensors: dict[str, tuple[list[int], bytes]], body: bytes) -> str:
        """Count a request and say what is wrong with it."""
        with self._lock:
            error = self.decide(self.served + self.failed)
            if "ids" in tensors:
                shape, data = tensors["ids"]
                ids = np.frombuffer(data, np.int64).reshape(shape)
                self.out_of_range += int(((ids < 0) | (ids >= (1000, 7))).sum())
                genres = np.frombuffer(tensors["genres.ids"][1] if "genres.ids" in tensors else b"", np.int64)
                self.out_of_range += int(((genres < -1) | (genres >= 20)).sum())
            self.bodies.append(body)
            self.failed += bool(error)
            self.served += not error
            self.rows += 0 if error else next(iter(tensors.values()))[0][0]
        return error

    def metadata(self) -> dict:
        inputs = [{"name": name, "datatype": kind, "shape": shape} for name, (kind, shape) in INPUTS.items()]
        inputs += [{"name": name, "datatype": kind, "shape": [-1, 1]} for name, kind in RAW_INPUTS.items()]
        return {
            "name": "ctr",
            "versions": ["1"],
            "platform": "stub",
            "inputs": inputs if self.with_schema else inputs[:2],
            "outputs": [{"name": "score", "datatype": "FP32", "shape": [-1, 1]}],
        }

    def config(self) -> dict:
        config: dict = {"name": "ctr", "max_batch_size": self.max_batch_size}
        if self.with_schema:
            config["parameters"] = {"schema": {"string_value": SCHEMA.model_dump_json()}}
        return config

    def statistics(self) -> dict:
        part = {"count": self.served, "ns": self.served * 1_000_000}
        parts = {
            "success": {"count": self.served, "ns": self.served * 4_000_000},
            "fail": {"count": self.failed, "ns": 0},
            **dict.fromkeys(("queue", "compute_input", "compute_infer", "compute_output"), part),
        }
        stats = {
            "name": "ctr",
            "version": "1",
            "inference_count": self.rows,
            "execution_count": max(1, self.served // 2),
            "inference_stats": parts,
        }
        return {"model_stats": [stats]}


@contextmanager
def http_stub(behaviour: Behaviour) -> Iterator[str]:
    """Serve HTTP on a free port; gives HOST:PORT."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def serve() -> asyncio.Server:
        return await asyncio.start_server(lambda reader, writer: _http(behaviour, reader, writer), "127.0.0.1", 0)

    server = asyncio.run_coroutine_threadsafe(serve(), loop).result()
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"127.0.0.1:{port}"
    finally:
        behaviour.closed = True
        asyncio.run_coroutine_threadsafe(_close(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _close(server: asyncio.Server) -> None:
    server.close()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _http(behaviour: Behaviour, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        lines = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        body = await reader.readexactly(int(lines.get("content-length", 0)))
        path = head.split(" ")[1]
        status, answer = 200, {}
        if path.endswith("/infer"):
            while (wait := behaviour.frozen()) > 0 and not behaviour.closed:
                await asyncio.sleep(wait)
            if error := behaviour.infer(_http_tensors(body, int(lines["inference-header-content-length"])), body):
                status, answer = 503, {"error": error}
        elif path == "/v2":
            answer = {"name": "stub", "version": "0", "extensions": ["statistics"]}
        elif path == "/v2/models/ctr":
            answer = behaviour.metadata()
        elif path == "/v2/models/ctr/config" and not behaviour.plain:
            answer = behaviour.config()
        elif path == "/v2/models/ctr/stats" and not behaviour.plain:
            answer = behaviour.statistics()
        else:
            status, answer = 404, {"error": "no such thing"}
        text = json.dumps(answer).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)


def _http_tensors(body: bytes, header: int) -> dict[str, tuple[list[int], bytes]]:
    tensors, at = {}, header
    for tensor in json.loads(body[:header])["inputs"]:
        size = tensor["parameters"]["binary_data_size"]
        tensors[tensor["name"]] = (tensor["shape"], body[at : at + size])
        at += size
    assert at == len(body)
    return tensors


@contextmanager
def grpc_stub(behaviour: Behaviour) -> Iterator[str]:
    """Serve gRPC on a free port; gives HOST:PORT."""
    server = grpc.server(futures.ThreadPoolExecutor(16))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Service(behaviour), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        behaviour.closed = True
        server.stop(0).wait()


class _Service(service_pb2_grpc.GRPCInferenceServiceServicer):
    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour

    def ServerMetadata(self, request, context):  # noqa: N802
        return service_pb2.ServerMetadataResponse(name="stub", version="0")

    def ModelMetadata(self, request, context):  # noqa: N802
        return json_format.ParseDict(self.behaviour.metadata(), service_pb2.ModelMetadataResponse())

    def ModelConfig(self, request, context):  # noqa: N802
        return json_format.ParseDict({"config": self.behaviour.config()}, service_pb2.ModelConfigResponse())

    def ModelStatistics(self, request, context):  # noqa: N802
        return json_format.ParseDict(self.behaviour.statistics(), service_pb2.ModelStatisticsResponse())

    def ModelInfer(self, request, context):  # noqa: N802
        while (wait := self.behaviour.frozen()) > 0 and not self.behaviour.closed:
            time.sleep(wait)
        raw = zip(request.inputs, request.raw_input_contents, strict=True)
        tensors = {tensor.name: (list(tensor.shape), data) for tensor, data in raw}
        if error := self.behaviour.infer(tensors, request.SerializeToString()):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, error)
        return service_pb2.ModelInferResponse(model_name="ctr", model_version="1")
