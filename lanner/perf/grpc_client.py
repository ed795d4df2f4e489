"""gRPC client of the load generator: requests go out as ready-made bytes, answers stay bytes."""

from __future__ import annotations

import http.client
import threading
from functools import partial
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import service_pb2

from lanner.perf.client import CALL_SECONDS, Done, Sample, ServerError, clock

SERVICE = "/inference.GRPCInferenceService"
UNKNOWN_CALL = (grpc.StatusCode.UNIMPLEMENTED,)

RETRY_SECONDS = 0.05
"""A server that is down is reported this late, so that a closed loop does not spin on it."""

PROBE_SECONDS = 2.0


class GrpcClient:
    """See `lanner.perf.client.Client`. Answers arrive on the channel's own thread, which also sends the next
    request of a closed loop: measured cheaper than a blocked thread a slot, and than grpc.aio."""

    def __init__(self, url: str, name: str, version: str, timeout: float) -> None:
        unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._url = url.removeprefix("grpc://")
        self._channel = grpc.insecure_channel(self._url, unlimited)
        self._infer = self._channel.unary_unary(f"{SERVICE}/ModelInfer")
        self._name, self._version, self._timeout = name, version, timeout

    def server(self) -> dict[str, Any]:
        return self._call("ServerMetadata", service_pb2.ServerMetadataRequest()) or {}

    def metadata(self) -> dict[str, Any]:
        request = service_pb2.ModelMetadataRequest(name=self._name, version=self._version)
        answer = self._call("ModelMetadata", request)
        if answer is None:
            raise ServerError(f"grpc {self._url} ModelMetadata: the server does not know this call")
        return answer

    def config(self) -> dict[str, Any] | None:
        answer = self._call("ModelConfig", service_pb2.ModelConfigRequest(name=self._name, version=self._version))
        return None if answer is None else dict(answer.get("config", {}))

    def statistics(self) -> dict[str, Any] | None:
        return self._call("ModelStatistics", service_pb2.ModelStatisticsRequest(name=self._name, version=self._version))

    def connect(self, slots: int) -> None:
        try:
            grpc.channel_ready_future(self._channel).result(CALL_SECONDS)
        except grpc.FutureTimeoutError as error:
            raise ServerError(f"cannot connect to {self._url} within {CALL_SECONDS:g} s") from error

    def submit(self, request: bytes, planned: float, done: Done) -> None:
        started = clock()
        call = self._infer.future(request, timeout=self._timeout)
        call.add_done_callback(partial(_finish, planned, started, clock(), done))

    def close(self) -> None:
        self._channel.close()

    def _call(self, method: str, request: Any) -> dict[str, Any] | None:
        """A describing call, its answer in the JSON form; None when the server does not know the call."""
        answer_type = getattr(service_pb2, type(request).__name__.removesuffix("Request") + "Response")
        call = self._channel.unary_unary(f"{SERVICE}/{method}", type(request).SerializeToString, answer_type.FromString)
        try:
            answer = call(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            if error.code() in UNKNOWN_CALL:
                return None
            if error.code() is grpc.StatusCode.UNAVAILABLE and _speaks_http(self._url):
                raise ServerError(
                    f"grpc {self._url}: this answers as HTTP/1.1, not gRPC: is it the HTTP port?"
                ) from error
            raise ServerError(f"grpc {self._url} {method}: {error.code().name}: {error.details()}") from error
        return dict(MessageToDict(answer, preserving_proto_field_name=True))


def _speaks_http(url: str) -> bool:
    """Whether an HTTP/1.1 server listens at HOST:PORT."""
    try:
        connection = http.client.HTTPConnection(url, timeout=PROBE_SECONDS)
        try:
            connection.request("GET", "/v2")
            connection.getresponse()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return False
    return True


def _finish(planned: float, started: float, sent: float, done: Done, call: Any) -> None:
    now = clock()
    code = call.code()
    if code is grpc.StatusCode.OK:
        done(Sample(planned, started, sent, now, now))
        return
    sample = Sample(planned, started, sent, now, now, f"{code.name}: {call.details()}")
    if code is grpc.StatusCode.UNAVAILABLE:
        threading.Timer(RETRY_SECONDS, done, (sample,)).start()
    else:
        done(sample)
