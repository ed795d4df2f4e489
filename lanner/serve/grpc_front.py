"""The gRPC front end: grpcio's thread-pool server with the published messages of the protocol.

Handler threads only read requests and wait; few of them cost half of what grpc.aio costs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict
from tritonclient.grpc import service_pb2, service_pb2_grpc

from lanner.serve import grpc_codec
from lanner.serve.batcher import Ticket
from lanner.serve.failure import RequestError, as_request_error, unsupported
from lanner.serve.request import Scores
from lanner.serve.service import Service

HANDLERS = 32
"""Handler threads: as many requests wait in the batcher at a time."""

STREAMS = HANDLERS // 2
"""Streams open at a time. Each keeps a handler thread, even while idle; the other threads answer all other calls."""

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    499: grpc.StatusCode.CANCELLED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
}


class Front(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """The protocol's RPCs on a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._streams = threading.BoundedSemaphore(STREAMS)

    def ServerLive(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.ServerLiveResponse(live=True)

    def ServerReady(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.ServerReadyResponse(ready=self._service.ready)

    def ModelReady(self, request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.ModelReadyResponse(ready=self._service.model_ready(request.name, request.version))

    def ServerMetadata(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.ServerMetadataResponse(**self._service.server_metadata())

    def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        with _errors(context):
            found = self._service.model_metadata(request.name, request.version)
            return ParseDict(found, service_pb2.ModelMetadataResponse())

    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        with _errors(context):
            return service_pb2.ModelConfigResponse(config=self._service.model_config(request.name, request.version))

    def ModelStatistics(self, request: Any, context: Any) -> Any:  # noqa: N802
        with _errors(context):
            found = self._service.statistics(request.name, request.version)
            return ParseDict(found, service_pb2.ModelStatisticsResponse())

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        with _errors(context):
            return self._infer(request, context.add_callback)

    def ModelStreamInfer(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802
        if not self._streams.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"at most {STREAMS} streams may be open at a time")
        try:
            for request in requests:
                yield self._stream_answer(request, context)
        finally:
            self._streams.release()

    def RepositoryIndex(self, request: Any, _context: Any) -> Any:  # noqa: N802
        return ParseDict({"models": self._service.index(request.ready)}, service_pb2.RepositoryIndexResponse())

    def RepositoryModelLoad(self, request: Any, context: Any) -> Any:  # noqa: N802
        with _errors(context):
            self._service.load(request.model_name)
            return service_pb2.RepositoryModelLoadResponse()

    def RepositoryModelUnload(self, request: Any, context: Any) -> Any:  # noqa: N802
        with _errors(context):
            self._service.unload(request.model_name)
            return service_pb2.RepositoryModelUnloadResponse()

    def TraceSetting(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        response = service_pb2.TraceSettingResponse()
        for key, value in self._service.trace.items():
            response.settings[key].value.extend([value] if isinstance(value, str) else value)
        return response

    def LogSettings(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        response = service_pb2.LogSettingsResponse()
        for key, value in self._service.log.items():
            kind = {bool: "bool_param", int: "uint32_param", str: "string_param"}[type(value)]
            setattr(response.settings[key], kind, value)
        return response

    def SystemSharedMemoryStatus(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.SystemSharedMemoryStatusResponse()

    def SystemSharedMemoryRegister(self, _request: Any, context: Any) -> Any:  # noqa: N802
        with _errors(context):
            raise unsupported("shared memory")

    def SystemSharedMemoryUnregister(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.SystemSharedMemoryUnregisterResponse()

    def CudaSharedMemoryStatus(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.CudaSharedMemoryStatusResponse()

    def CudaSharedMemoryRegister(self, _request: Any, context: Any) -> Any:  # noqa: N802
        with _errors(context):
            raise unsupported("shared memory")

    def CudaSharedMemoryUnregister(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.CudaSharedMemoryUnregisterResponse()

    def _stream_answer(self, request: Any, context: Any) -> Any:
        """The answer to one request of a stream: scores, or what is wrong with it; the stream goes on."""
        try:
            return service_pb2.ModelStreamInferResponse(infer_response=self._infer(request, context.add_callback))
        except Exception as error:  # a fault of ours must cost one answer, not the stream
            failed = service_pb2.ModelInferResponse(id=request.id, model_name=request.model_name)
            message = as_request_error(error).message
            return service_pb2.ModelStreamInferResponse(error_message=message, infer_response=failed)

    def _infer(self, message: Any, on_end: Callable[[Callable[[], None]], bool]) -> Any:
        """Read, queue and wait for one request; a client that leaves before it starts cancels it."""
        arrived = time.perf_counter_ns()
        answered = threading.Event()
        try:
            request = grpc_codec.read(message)
        except RequestError:
            self._service.malformed(message.model_name, message.model_version, arrived)
            raise

        def done(_ticket: Ticket) -> None:
            answered.set()

        loaded, ticket = self._service.submit(request, arrived, done)
        on_end(lambda: loaded.batcher.cancel(ticket))
        answered.wait()
        if ticket.error:
            raise ticket.error
        assert ticket.scores is not None
        return grpc_codec.write(request, Scores(ticket.version, ticket.scores))


class _errors:  # noqa: N801
    """Turns an error into the RPC's status."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception):
            failure = as_request_error(error)
            self._context.abort(_CODES[failure.status], failure.message)


def start(service: Service, address: str) -> tuple[Any, int]:
    """Start the front end on `address`; returns the grpcio server and its port. Raises OSError when it is taken."""
    options = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.server(ThreadPoolExecutor(HANDLERS, thread_name_prefix="lanner-grpc"), options=options)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Front(service), server)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"{address}: cannot listen for gRPC: {error}") from error
    server.start()
    return server, port
