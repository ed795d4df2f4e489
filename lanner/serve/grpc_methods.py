"""The protocol's gRPC methods beside inference, on a service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.json_format import ParseDict
from tritonclient.grpc import service_pb2 as pb

from lanner.serve.failure import unsupported
from lanner.serve.service import Service

Call = Callable[[Service, Any], Any]


def _model_ready(service: Service, request: Any) -> Any:
    return pb.ModelReadyResponse(ready=service.model_ready(request.name, request.version))


def _model_metadata(service: Service, request: Any) -> Any:
    return ParseDict(service.model_metadata(request.name, request.version), pb.ModelMetadataResponse())


def _model_config(service: Service, request: Any) -> Any:
    return pb.ModelConfigResponse(config=service.model_config(request.name, request.version))


def _model_statistics(service: Service, request: Any) -> Any:
    return ParseDict(service.statistics(request.name, request.version), pb.ModelStatisticsResponse())


def _repository_index(service: Service, request: Any) -> Any:
    return ParseDict({"models": service.index(request.ready)}, pb.RepositoryIndexResponse())


def _load(service: Service, request: Any) -> Any:
    service.load(request.model_name)
    return pb.RepositoryModelLoadResponse()


def _unload(service: Service, request: Any) -> Any:
    service.unload(request.model_name)
    return pb.RepositoryModelUnloadResponse()


def _trace_setting(service: Service, _request: Any) -> Any:
    response = pb.TraceSettingResponse()
    for key, value in service.trace.items():
        response.settings[key].value.extend([value] if isinstance(value, str) else value)
    return response


def _log_settings(service: Service, _request: Any) -> Any:
    response = pb.LogSettingsResponse()
    for key, value in service.log.items():
        kind = {bool: "bool_param", int: "uint32_param", str: "string_param"}[type(value)]
        setattr(response.settings[key], kind, value)
    return response


def _register(_service: Service, _request: Any) -> Any:
    raise unsupported("shared memory")


METHODS: dict[str, tuple[Any, Call, bool]] = {
    "ServerLive": (pb.ServerLiveRequest, lambda _s, _r: pb.ServerLiveResponse(live=True), False),
    "ServerReady": (pb.ServerReadyRequest, lambda s, _r: pb.ServerReadyResponse(ready=s.ready), False),
    "ModelReady": (pb.ModelReadyRequest, _model_ready, False),
    "ServerMetadata": (
        pb.ServerMetadataRequest, lambda s, _r: pb.ServerMetadataResponse(**s.server_metadata()), False,
    ),
    "ModelMetadata": (pb.ModelMetadataRequest, _model_metadata, False),
    "ModelConfig": (pb.ModelConfigRequest, _model_config, False),
    "ModelStatistics": (pb.ModelStatisticsRequest, _model_statistics, False),
    "RepositoryIndex": (pb.RepositoryIndexRequest, _repository_index, False),
    "RepositoryModelLoad": (pb.RepositoryModelLoadRequest, _load, True),
    "RepositoryModelUnload": (pb.RepositoryModelUnloadRequest, _unload, True),
    "TraceSetting": (pb.TraceSettingRequest, _trace_setting, False),
    "LogSettings": (pb.LogSettingsRequest, _log_settings, False),
    "SystemSharedMemoryStatus": (
        pb.SystemSharedMemoryStatusRequest, lambda _s, _r: pb.SystemSharedMemoryStatusResponse(), False,
    ),
    "SystemSharedMemoryRegister": (pb.SystemSharedMemoryRegisterRequest, _register, False),
    "SystemSharedMemoryUnregister": (
        pb.SystemSharedMemoryUnregisterRequest, lambda _s, _r: pb.SystemSharedMemoryUnregisterResponse(), False,
    ),
    "CudaSharedMemoryStatus": (
        pb.CudaSharedMemoryStatusRequest, lambda _s, _r: pb.CudaSharedMemoryStatusResponse(), False,
    ),
    "CudaSharedMemoryRegister": (pb.CudaSharedMemoryRegisterRequest, _register, False),
    "CudaSharedMemoryUnregister": (
        pb.CudaSharedMemoryUnregisterRequest, lambda _s, _r: pb.CudaSharedMemoryUnregisterResponse(), False,
    ),
}  # fmt: skip
"""By name: the request's message, the operation, and whether it takes long."""
