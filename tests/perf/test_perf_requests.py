"""Requests are valid for the model, the same for the same seed, and hold what their rows say."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perf_stub import INPUTS, SCHEMA, Behaviour
from tritonclient.grpc import service_pb2
from tritonclient.utils import deserialize_bytes_tensor

from lanner.errors import ConfigError
from lanner.perf import Settings, generate, requests
from lanner.perf.model import Model, describe


def _model(**behaviour: object) -> Model:
    stub = Behaviour(**behaviour)  # type: ignore[arg-type]
    return describe(stub.metadata(), stub.config())


def _settings(**values: object) -> Settings:
    return Settings.parse({"name": "ctr", "url": "h:1", "concurrency": (1,), **values})


def _grpc_tensors(request: bytes) -> dict[str, np.ndarray]:
    message = service_pb2.ModelInferRequest.FromString(request)
    found = {}
    for tensor, data in zip(message.inputs, message.raw_input_contents, strict=True):
        if tensor.datatype == "BYTES":
            found[tensor.name] = deserialize_bytes_tensor(data).reshape(tensor.shape)
        else:
            found[tensor.name] = np.frombuffer(data, generate.NUMPY_TYPES[tensor.datatype]).reshape(tensor.shape)
    return found


def _http_tensors(request: bytes) -> dict[str, np.ndarray]:
    head, _, body = request.partition(b"\r\n\r\n")
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
    assert int(fields[b"Content-Length"]) == len(body)
    at = int(fields[b"Inference-Header-Content-Length"])
    found = {}
    for tensor in json.loads(body[:at])["inputs"]:
        size = tensor["parameters"]["binary_data_size"]
        data = body[at : at + size]
        found[tensor["name"]] = np.frombuffer(data, generate.NUMPY_TYPES[tensor["datatype"]]).reshape(tensor["shape"])
        at += size
    assert at == len(body)
    return found


@given(st.integers(1, 70), st.sampled_from([0.0, 0.7, 1.0, 1.2]), st.integers(0, 5))
def test_ids_lie_inside_their_tables(batch: int, skew: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tensors = generate.encoded(SCHEMA, batch, rng, skew)
    ids, genres = tensors["ids"].values, tensors["genres.ids"].values
    assert ids.shape == (batch, 2) and ids.min() >= 0 and (ids < (1000, 7)).all()
    lengths = (genres >= 0).sum(axis=1)
    assert ((genres >= -1) & (genres < 20)).all() and lengths.min() >= 1 and lengths.max() <= 4
    assert (genres[np.arange(genres.shape[1]) >= lengths[:, None]] == -1).all()
    assert tensors["dense"].values.shape == (batch, 2)


def test_a_skewed_draw_follows_the_power_law() -> None:
    ids = generate.draw(1000, 200_000, np.random.default_rng(3), 1.2)
    counts = np.bincount(ids, minlength=1000)
    # The continuous law: P(id <= k) = (1 - (k + 2) ** -0.2) / (1 - 1001 ** -0.2).
    for id_ in (0, 9, 99):
        expected = (1 - (id_ + 2) ** -0.2) / (1 - 1001**-0.2)
        assert counts[: id_ + 1].sum() / ids.size == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("form", ["encoded", "raw"])
def test_same_seed_same_requests(protocol: str, form: str) -> None:
    pools = [requests.build(_model(), _settings(protocol=protocol, form=form, batch=3, seed=s)) for s in (1, 1, 2)]
    assert pools[0] == pools[1]
    assert pools[0] != pools[2]
    assert len(set(pools[0])) == len(pools[0])


def test_both_protocols_carry_the_same_rows() -> None:
    pools = {name: requests.build(_model(), _settings(protocol=name, batch=5, seed=4)) for name in ("grpc", "http")}
    for left, right in zip(pools["grpc"][:20], pools["http"][:20], strict=True):
        ours, theirs = _grpc_tensors(left), _http_tensors(right)
        assert ours.keys() == theirs.keys() == INPUTS.keys()
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])
        assert ours["ids"].shape == (5, 2)


def test_raw_requests_have_the_declared_types() -> None:
    tensors = _grpc_tensors(requests.build(_model(), _settings(form="raw", batch=4))[0])
    assert {name: values.dtype.name for name, values in tensors.items()} == {
        "price": "float64", "age": "float64", "user": "object", "item": "int64", "genres": "object",
    }  # fmt: skip
    assert all(values.shape == (4, 1) for values in tensors.values())
    assert ((tensors["item"] >= 0) & (tensors["item"] < 7)).all()
    assert all(1 <= len(text.split(b"|")) <= 4 for text in tensors["genres"].ravel())


def test_bags_are_trimmed_to_the_longest_of_the_request() -> None:
    for request in requests.build(_model(), _settings(batch=1))[:50]:
        genres = _grpc_tensors(request)["genres.ids"]
        assert (genres >= 0).all()


def test_without_a_schema_values_follow_the_options() -> None:
    model = _model(with_schema=False)
    settings = _settings(batch=6, ranges={"ids": (40, 43)})
    tensors = _grpc_tensors(requests.build(model, settings)[0])
    assert set(np.unique(tensors["ids"])) <= {40, 41, 42}
    assert ((tensors["dense"] >= 0) & (tensors["dense"] < 1)).all()


@pytest.mark.parametrize(
    ("behaviour", "values", "message"),
    [
        ({}, {"batch": 5000}, "at most 4096 rows"),
        ({"max_batch_size": 0}, {"batch": 2}, "does not take batches"),
        ({"with_schema": False}, {"form": "raw"}, "no schema"),
        ({"with_schema": False}, {"ranges": {"nope": (0, 1)}}, "no input 'nope'"),
    ],
)
def test_impossible_requests_are_refused(behaviour: dict, values: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        requests.build(_model(**behaviour), _settings(**values))


def test_open_shapes_must_be_given() -> None:
    metadata = {"name": "m", "inputs": [{"name": "x", "datatype": "INT32", "shape": [-1, -1, 3]}]}
    model = describe(metadata, {"max_batch_size": 8})
    with pytest.raises(ConfigError, match="--shape x="):
        requests.build(model, _settings())
    tensors = _grpc_tensors(requests.build(model, _settings(batch=2, shapes={"x": (5, 3)}))[0])
    assert tensors["x"].shape == (2, 5, 3) and tensors["x"].dtype == np.int32


def test_a_model_without_batches_gets_plain_shapes() -> None:
    metadata = {"name": "m", "inputs": [{"name": "x", "datatype": "BYTES", "shape": [2]}]}
    tensors = _grpc_tensors(requests.build(describe(metadata, {}), _settings())[0])
    assert tensors["x"].shape == (2,)


def test_an_unfitted_schema_is_refused() -> None:
    stub = Behaviour()
    config = stub.config()
    unfitted = {"labels": [{"name": "label"}], "sparse": [{"name": "user"}]}
    config["parameters"]["schema"]["string_value"] = json.dumps(unfitted)
    with pytest.raises(ConfigError, match="not fitted"):
        requests.build(describe(stub.metadata(), config), _settings())
