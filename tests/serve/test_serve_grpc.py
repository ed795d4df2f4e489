"""gRPC beyond what the clients do: many streams, and requests that are wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from lanner.serve.grpc_front import HANDLERS, STREAMS


@pytest.fixture
def stub(server: Any) -> Iterator[Any]:
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def ask(shape: tuple[int, ...] = (1, 4), raw: bytes | None = None) -> Any:
    """A request for the model `planted`, of one row unless told otherwise."""
    message = service_pb2.ModelInferRequest(model_name="planted")
    message.inputs.add(name="ids", datatype="INT64", shape=shape)
    message.raw_input_contents.append((0).to_bytes(8, "little") * 4 if raw is None else raw)
    return message


def test_open_streams_leave_threads_for_all_other_calls(stub: Any) -> None:
    ended = threading.Event()

    def requests() -> Iterator[Any]:
        yield ask()
        ended.wait(60)

    streams = [stub.ModelStreamInfer(requests()) for _ in range(STREAMS)]
    try:
        for stream in streams:
            assert not next(stream).error_message
        for _ in range(HANDLERS):
            with pytest.raises(grpc.RpcError) as refused:
                next(stub.ModelStreamInfer(requests()))
            assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert str(STREAMS) in refused.value.details()
        assert stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=30).live
        assert stub.ModelInfer(ask(), timeout=30).outputs[0].name == "score"
    finally:
        ended.set()
    for stream in streams:
        assert list(stream) == []
    assert [answer.error_message for answer in stub.ModelStreamInfer(iter([ask()]))] == [""]


WRONG = [ask((1,) * 99 + (4,)), ask((2**62, 0), b""), ask((2**40, 0), b""), ask((1, 5))]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_shape_no_tensor_has_is_the_clients_fault(stub: Any, wrong: Any) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(wrong, timeout=30)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "'ids'" in refused.value.details()


def test_a_wrong_request_leaves_its_stream_open(stub: Any) -> None:
    answers = list(stub.ModelStreamInfer(iter([*WRONG, ask()]), timeout=30))
    assert [bool(answer.error_message) for answer in answers] == [True] * len(WRONG) + [False]
