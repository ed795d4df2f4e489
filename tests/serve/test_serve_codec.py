"""Reading requests: JSON, binary tensors, typed contents; what is malformed is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2
from tritonclient.utils import serialize_byte_tensor

from lanner.serve import bytelist, grpc_codec, http_codec
from lanner.serve.datatypes import NUMERIC, widen
from lanner.serve.failure import RequestError
from lanner.serve.request import Output, Request, Scores


def body(*inputs: dict[str, Any], **more: Any) -> bytes:
    return orjson.dumps({"inputs": list(inputs), **more})


def given_as(datatype: str, data: Any, shape: list[int] | None = None) -> dict[str, Any]:
    return {"name": "x", "datatype": datatype, "shape": [len(data)] if shape is None else shape, "data": data}


def read(*inputs: dict[str, Any], **more: Any) -> Request:
    return http_codec.read("m", "", body(*inputs, **more), None)


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.text(max_size=40)))
def test_bytes_elements_survive_the_wire(texts: list[str]) -> None:
    theirs = serialize_byte_tensor(np.array(texts, dtype=np.object_))
    wire = theirs.item() if theirs.size else b""
    assert bytelist.encode(texts) == wire
    assert bytelist.decode("x", wire, len(texts)).to_pylist() == texts


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(0, 20))
def test_random_bytes_are_decoded_or_refused(wire: bytes, count: int) -> None:
    try:
        texts = bytelist.decode("x", wire, count).to_pylist()
    except RequestError as error:
        assert "'x'" in error.message
    else:
        assert bytelist.encode(texts) == wire


@pytest.mark.parametrize(
    ("wire", "count", "problem"),
    [
        (b"\x05\0\0\0abc", 1, "end before"),
        (b"\x01\0\0\0ab", 1, "go on after"),
        (b"\x01\0\0", 1, "too few"),
        (b"\xff\xff\xff\xffabc", 1, "end before"),
        (b"\x02\0\0\0\xff\xfe", 1, "UTF-8"),
        (b"", 2**61, "too few"),
    ],
)
def test_damaged_bytes_are_named(wire: bytes, count: int, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        bytelist.decode("x", wire, count)


@pytest.mark.parametrize("datatype", sorted(NUMERIC))
def test_numbers_of_every_type_arrive_exactly(datatype: str) -> None:
    kind = NUMERIC[datatype]
    if kind.kind == "f":
        values = np.array([0.5, -2.0, 3.0], dtype=kind)
    elif kind.kind == "b":
        values = np.array([True, False, True])
    else:
        values = np.array([np.iinfo(kind).min, np.iinfo(kind).max, 7], dtype=kind)
    head = {"name": "x", "datatype": datatype, "shape": [3], "parameters": {"binary_data_size": values.nbytes}}
    text = body(head)
    for request in (
        read(given_as(datatype, values.tolist())),
        http_codec.read("m", "", text + values.tobytes(), str(len(text))),
    ):
        seen = request.inputs["x"].values
        assert seen.dtype == kind
        np.testing.assert_array_equal(seen, values)


def test_integers_beyond_2_to_53_are_exact_and_beyond_64_bits_refused() -> None:
    exact = [9007199254740993, 2**63 - 1, -(2**63)]
    assert read(given_as("INT64", exact)).inputs["x"].values.tolist() == exact
    for number in ("9223372036854775808", "-9223372036854775809", "18446744073709551616", "1e3", "7.0", "true"):
        text = b'{"inputs":[{"name":"x","datatype":"INT64","shape":[1],"data":[' + number.encode() + b"]}]}"
        with pytest.raises(RequestError, match="'x'"):
            http_codec.read("m", "", text, None)


def test_a_number_too_large_for_its_type_is_refused_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(RequestError, match="does not fit FP32"):
        read(given_as("FP32", [1.0, 1e39]))
    assert not recwarn.list
    assert read(given_as("FP64", [1e39])).inputs["x"].values[0] == 1e39


def test_nested_data_is_read_in_row_major_order() -> None:
    request = read(given_as("FP32", [[1, 2.5], [3, 4]], [2, 2]), id="7", parameters={"timeout": 5})
    assert request.inputs["x"].values.tolist() == [[1, 2.5], [3, 4]]
    assert (request.id, request.timeout, request.outputs) == ("7", 5, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"{", "failed to parse"),
        (b"[]", "must be an object"),
        (b"{}", "'inputs'"),
        (b'{"inputs":3}', "'inputs'"),
        (b'{"inputs":[{}]}', "must have 'name'"),
        (b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1]}]}', "neither 'data'"),
        (body(given_as("FP31", [1])), "unknown datatype 'FP31'"),
        (body(given_as("FP32", [1, 2], [3])), "2 elements of data, but shape \\[3\\] takes 3"),
        (body(given_as("FP32", [1], [-1])), "non-negative"),
        (body(given_as("FP32", [1], [1.5])), "non-negative"),  # type: ignore[list-item]
        (body(given_as("FP32", [1], [2**40, 2**40])), "more elements"),
        (body(given_as("FP32", ["a"])), "'a' in the data is no FP32"),
        (body(given_as("FP32", [None])), "None in the data is no FP32"),
        (body(given_as("FP32", [[1], 2], [2])), "mixes"),
        (body(given_as("UINT8", [257])), "does not fit UINT8"),
        (body(given_as("UINT8", [-1])), "does not fit UINT8"),
        (body(given_as("BYTES", [1])), "1 in the data is no BYTES"),
        (body(given_as("FP32", [1]), given_as("FP32", [1])), "more than once"),
        (body(given_as("FP32", [1]), outputs=[3]), "'outputs'"),
        (body(given_as("FP32", [1]), parameters={"timeout": -1}), "'timeout'"),
        (b"[" * 100_000, "failed to parse"),
    ],
)
def test_malformed_json_requests_are_named(text: bytes, problem: str) -> None:
    with pytest.raises(RequestError, match=problem) as error:
        http_codec.read("m", "", text, None)
    assert error.value.status == 400


@pytest.mark.parametrize("length", ["abc", "-1", "99999999999", "1e2", ""])
def test_a_header_length_that_cannot_be_is_refused(length: str) -> None:
    with pytest.raises(RequestError, match="Inference-Header-Content-Length"):
        http_codec.read("m", "", body(given_as("FP32", [1])), length)


@pytest.mark.parametrize(
    ("size", "data", "problem"),
    [(8, b"\0" * 8, "8 bytes of data"), (4, b"\0\0", "2 bytes are left"), (4, b"\0" * 6, "2 bytes follow"),
     (-4, b"\0" * 4, "binary_data_size is -4")],
)  # fmt: skip
def test_binary_data_of_a_wrong_size_is_named(size: int, data: bytes, problem: str) -> None:
    text = body({"name": "x", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": size}})
    with pytest.raises(RequestError, match=problem):
        http_codec.read("m", "", text + data, str(len(text)))


@pytest.mark.parametrize(
    ("given", "target", "fits"),
    [("UINT8", "INT64", True), ("INT32", "INT64", True), ("UINT64", "INT64", False), ("FP32", "INT64", False),
     ("FP16", "FP32", True), ("FP64", "FP32", False), ("INT64", "FP64", True), ("BOOL", "INT64", False)],
)  # fmt: skip
def test_types_are_widened_without_loss_or_refused(given: str, target: str, fits: bool) -> None:
    values = np.array([1, 0], dtype=NUMERIC[given])
    if fits:
        seen = widen("x", given, values, target)
        assert (seen.dtype, seen.tolist()) == (NUMERIC[target], [1, 0])
    else:
        with pytest.raises(RequestError, match=f"{given} given, expected {target}"):
            widen("x", given, values, target)


def test_scores_are_written_as_json_or_binary() -> None:
    scores = Scores("3", np.array([[0.25], [0.5]], dtype=np.float32))
    parts, length = http_codec.write(Request("m", id="9"), scores)
    assert length is None
    assert orjson.loads(b"".join(parts)) == {
        "model_name": "m", "model_version": "3", "id": "9",
        "outputs": [{"name": "score", "datatype": "FP32", "shape": [2, 1], "data": [0.25, 0.5]}],
    }  # fmt: skip
    for request in (Request("m", binary=True), Request("m", outputs=[Output("score", True)])):
        parts, length = http_codec.write(request, scores)
        whole = b"".join(parts)
        assert orjson.loads(whole[:length])["outputs"][0]["parameters"] == {"binary_data_size": 8}
        assert np.frombuffer(whole[length:], dtype="<f4").tolist() == [0.25, 0.5]


def message(datatype: str, shape: list[int], raw: bytes | None = None, **contents: Any) -> Any:
    request = service_pb2.ModelInferRequest(model_name="m")
    given = request.inputs.add(name="x", datatype=datatype, shape=shape)
    for field, values in contents.items():
        getattr(given.contents, field).extend(values)
    if raw is not None:
        request.raw_input_contents.append(raw)
    return request


def test_typed_and_raw_contents_are_equal() -> None:
    values = np.array([[1, -2], [3, 2**40]], dtype=np.int64)
    typed = grpc_codec.read(message("INT64", [2, 2], int64_contents=values.reshape(-1).tolist()))
    raw = grpc_codec.read(message("INT64", [2, 2], values.tobytes()))
    np.testing.assert_array_equal(typed.inputs["x"].values, values)
    np.testing.assert_array_equal(raw.inputs["x"].values, values)
    texts = grpc_codec.read(message("BYTES", [2], bytes_contents=["ä".encode(), b""]))
    assert texts.inputs["x"].values.to_pylist() == ["ä", ""]


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (message("INT8", [1], int_contents=[300]), "does not fit INT8"),
        (message("INT64", [1], int_contents=[3]), "belongs in int64_contents"),
        (message("INT64", [2], int64_contents=[3]), "1 elements"),
        (message("FP16", [1]), "raw_input_contents"),
        (message("NONE", [1]), "unknown datatype"),
        (message("FP32", [-1], b""), "non-negative"),
        (message("FP32", [2], b"\0"), "1 bytes of data"),
    ],
)
def test_malformed_messages_are_named(request_: Any, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        grpc_codec.read(request_)


def test_every_input_needs_its_raw_contents() -> None:
    request = message("FP32", [1], b"\0" * 4)
    request.raw_input_contents.append(b"\0" * 4)
    with pytest.raises(RequestError, match="2 raw_input_contents for 1 inputs"):
        grpc_codec.read(request)
