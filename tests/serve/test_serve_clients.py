"""A real server process, asked by NVIDIA's own clients."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
import xxhash
from tritonclient.utils import InferenceServerException

from lanner.data.batch import Bags
from lanner.kernels.hashing import bucket
from lanner.models import RankingModel
from lanner.schema import Schema


class Client:
    """Either of the two clients, with the same few calls."""

    def __init__(self, module: Any, client: Any) -> None:
        self.module, self.client = module, client

    def infer(self, model: str, tensors: dict[str, tuple[str, np.ndarray]], **options: Any) -> np.ndarray:
        given = []
        for name, (datatype, values) in tensors.items():
            tensor = self.module.InferInput(name, list(values.shape), datatype)
            tensor.set_data_from_numpy(values)
            given.append(tensor)
        scores: np.ndarray = self.client.infer(model, given, **options).as_numpy("score")
        return scores


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, server: Any) -> Iterator[Client]:
    module = http_client if request.param == "http" else grpc_client
    with closing(server.http_client() if request.param == "http" else server.grpc_client()) as found:
        yield Client(module, found)


def mixed_request(rows: int, seed: int) -> dict[str, tuple[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    tags = rng.integers(0, 21, (rows, 5))
    tags[np.arange(5) >= rng.integers(0, 6, rows)[:, None]] = -1
    return {
        "dense": ("FP32", rng.standard_normal((rows, 2), dtype=np.float32)),
        "ids": ("INT64", rng.integers(0, 30, (rows, 2))),
        "tags.ids": ("INT64", tags),
        "pair.ids": ("INT64", rng.integers(0, 10, (rows, 2))),
    }


def mixed_scores(model: RankingModel, tensors: dict[str, tuple[str, np.ndarray]]) -> np.ndarray:
    """The model's own scores, its bags built without the server's code."""
    ids, tags, pairs = (tensors[name][1] for name in ("ids", "tags.ids", "pair.ids"))
    count = len(ids)
    real = tags >= 0
    values = np.concatenate([ids[:, 0], tags[real], ids[:, 1], pairs.reshape(-1)])
    lengths = np.concatenate([np.ones(count, int), real.sum(1), np.ones(count, int), np.full(count, 2)])
    names = ("user", "tags", "item", "pair")
    bags = Bags.from_lengths(names, torch.from_numpy(values), torch.from_numpy(lengths))
    with torch.no_grad():
        logits = model.head(torch.from_numpy(tensors["dense"][1]), model.embedding(bags))
    return torch.sigmoid(logits).numpy()


def words(*texts: str) -> tuple[str, np.ndarray]:
    return "BYTES", np.array(texts, dtype=np.object_)[:, None]


def ints(*numbers: int) -> tuple[str, np.ndarray]:
    return "INT64", np.array(numbers, dtype=np.int64)[:, None]


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


def test_every_administrative_call_is_answered(client: Client) -> None:
    c = client.client
    assert c.is_server_live()
    assert c.is_server_ready()
    assert c.is_model_ready("mixed")
    assert c.is_model_ready("mixed", "1")
    assert not c.is_model_ready("nothing")
    json = {"as_json": True} if client.module is grpc_client else {}
    assert c.get_server_metadata(**json)["name"] == "lanner"
    assert "statistics" in c.get_server_metadata(**json)["extensions"]
    metadata = c.get_model_metadata("mixed", **json)
    shapes = {tensor["name"]: [int(size) for size in tensor["shape"]] for tensor in metadata["inputs"]}
    assert shapes["dense"] == [-1, 2]
    assert shapes["tags.ids"] == [-1, -1]
    assert shapes["price"] == [-1, 1]
    assert [int(size) for size in metadata["outputs"][0]["shape"]] == [-1, 2]
    config = c.get_model_config("mixed", **json)
    config = config.get("config", config)
    assert config["max_batch_size"] == 4096
    assert "sequence_batching" not in config
    assert Schema.model_validate_json(config["parameters"]["schema"]["string_value"]).labels[1].name == "buy"
    index = c.get_model_repository_index(**json)
    index = index["models"] if isinstance(index, dict) else index
    assert {(model["name"], model["state"]) for model in index} == {("mixed", "READY"), ("planted", "READY")}
    assert c.get_trace_settings(**json)
    assert c.get_log_settings(**json)
    c.get_system_shared_memory_status()
    c.unregister_system_shared_memory()
    c.unregister_cuda_shared_memory()


@pytest.mark.parametrize("rows", [1, 7, 300])
def test_scores_equal_the_models(client: Client, mixed_model: RankingModel, rows: int) -> None:
    tensors = mixed_request(rows, rows)
    scores = client.infer("mixed", tensors, model_version="1", request_id="a")
    np.testing.assert_allclose(scores, mixed_scores(mixed_model, tensors), rtol=0, atol=1e-6)


def test_json_in_and_out_equals_binary(server: Any, mixed_model: RankingModel) -> None:
    tensors = mixed_request(5, 5)
    given = []
    for name, (datatype, values) in tensors.items():
        given.append(http_client.InferInput(name, list(values.shape), datatype))
        given[-1].set_data_from_numpy(values, binary_data=False)
    with closing(server.http_client()) as client:
        for compression in (None, "gzip", "deflate"):
            answer = client.infer(
                "mixed",
                given,
                outputs=[http_client.InferRequestedOutput("score", binary_data=False)],
                request_compression_algorithm=compression,
                response_compression_algorithm=compression,
            )
            np.testing.assert_allclose(answer.as_numpy("score"), mixed_scores(mixed_model, tensors), rtol=0, atol=1e-6)


def test_many_clients_at_once_all_get_their_own_answers(server: Any, mixed_model: RankingModel) -> None:
    sizes = [1, 2, 3, 17, 64, 130]
    expected = {k: (mixed_request(sizes[k % 6], k), None) for k in range(24)}
    answers = {k: mixed_scores(mixed_model, tensors) for k, (tensors, _) in expected.items()}
    start = threading.Barrier(32)

    def one(worker: int) -> float:
        module = http_client if worker % 2 else grpc_client
        worst = 0.0
        with closing(server.http_client() if worker % 2 else server.grpc_client()) as found:
            start.wait()
            for step in range(15):
                k = (worker * 7 + step) % 24
                scores = Client(module, found).infer("mixed", expected[k][0])
                worst = max(worst, float(np.abs(scores - answers[k]).max()))
        return worst

    with ThreadPoolExecutor(32) as pool:
        assert max(pool.map(one, range(32))) <= 1e-6


def test_hashed_texts_and_big_keys_reach_their_rows(client: Client) -> None:
    texts = ["", "ü", "x" * 10_000, *(f"w{k}" for k in range(997))]
    keys = [9007199254740992, 9007199254740993, 2**63 - 1, -(2**63), *range(996)]
    scores = client.infer("planted", {"word": words(*texts), "big": ints(*keys), "one": ints(*[3] * 1000)})
    hashes = np.array([xxhash.xxh64_intdigest(text.encode()) for text in texts], dtype=np.uint64)
    word_ids = 1 + bucket(hashes.view(np.int64), 7, 1000).astype(np.int64)
    word_ids[0] = 0  # an empty text is the missing value
    big_ids = 1 + bucket(np.array(keys, dtype=np.int64), 0, 100_000).astype(np.int64)
    assert len(set(big_ids[:4])) == 4
    expected = sigmoid((word_ids + big_ids) / 1000 + 3.0)
    np.testing.assert_allclose(scores[:, 0], expected, rtol=0, atol=1e-6)


def test_big_keys_are_exact_in_json(server: Any) -> None:
    keys = [9007199254740993, 9007199254740992]
    given = [http_client.InferInput("big", [2, 1], "INT64"), http_client.InferInput("one", [2, 1], "INT64")]
    given[0].set_data_from_numpy(np.array(keys)[:, None], binary_data=False)
    given[1].set_data_from_numpy(np.array([[1], [1]]), binary_data=False)
    with closing(server.http_client()) as client:
        scores = client.infer("planted", given).as_numpy("score")[:, 0]
    ids = 1 + bucket(np.array(keys, dtype=np.int64), 0, 100_000).astype(np.int64)
    np.testing.assert_allclose(scores, sigmoid(ids / 1000 + 3.0), rtol=0, atol=1e-6)


def planted(one: int) -> dict[str, tuple[str, np.ndarray]]:
    return {"ids": ("INT64", np.array([[0, 0, one, 0]], dtype=np.int64))}


def test_an_id_outside_its_table_never_reads_the_next_table(client: Client) -> None:
    assert client.infer("planted", planted(9))[0, 0] == pytest.approx(sigmoid(np.array(3.0)), abs=1e-6)
    for bad in (10, -1, 2**40):
        with pytest.raises(InferenceServerException, match=f"table 't1', feature 'one': id {bad} in row 0"):
            client.infer("planted", planted(bad))
        with pytest.raises(InferenceServerException, match=f"{bad} is outside 0..9"):
            client.infer("planted", {"one": ints(bad)})
    assert client.infer("planted", planted(9))[0, 0] == pytest.approx(sigmoid(np.array(3.0)), abs=1e-6)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda c: c.infer("nothing", planted(1)), "unknown model: 'nothing' is not found"),
        (lambda c: c.infer("planted", planted(1), model_version="9"), "version 9 is not found"),
        (lambda c: c.infer("planted", {"ids": ("FP32", np.ones((1, 4), np.float32))}), "FP32 given, expected INT64"),
        (lambda c: c.infer("planted", {"ids": ints(1, 2)}), r"Expected \[-1, 4\], got \[2, 1\]"),
        (lambda c: c.infer("planted", {"foo": ints(1)}), "unexpected inputs: foo"),
        (lambda c: c.infer("planted", {"ids": ("INT64", np.ones((5000, 4), int))}), "batch-size must be <= 4096"),
        (lambda c: c.infer("planted", planted(1), outputs=[c.module.InferRequestedOutput("scores")]), "'scores'"),
        (lambda c: c.client.load_model("planted"), "explicit model load / unload is not allowed"),
        (lambda c: c.client.get_model_config("nothing"), "'nothing' is not found"),
        (lambda c: c.client.register_system_shared_memory("a", "/a", 8), "not supported"),
    ],
)
def test_wrong_calls_are_refused_and_the_server_goes_on(
    client: Client, server: Any, call: Callable[[Client], Any], problem: str
) -> None:
    with pytest.raises(InferenceServerException, match=problem):
        call(client)
    assert client.infer("planted", planted(9)).shape == (1, 1)
    assert server.process.poll() is None


def test_a_score_that_is_not_finite_is_an_error(client: Client) -> None:
    rows = np.array([[0, 0, 3, 0], [0, 100_000, 3, 0]])
    with pytest.raises(InferenceServerException, match="score of row 1 is not finite"):
        client.infer("planted", {"ids": ("INT64", rows)})
    assert client.infer("planted", {"ids": ("INT64", rows[:1])}).shape == (1, 1)


def test_streamed_requests_are_answered_in_order(server: Any, mixed_model: RankingModel) -> None:
    answers: list[Any] = []
    with closing(server.grpc_client()) as client:
        client.start_stream(lambda result, error: answers.append(error or result.as_numpy("score")))
        for k in (1, 2, 3):
            given = []
            for name, (datatype, values) in mixed_request(k, k).items():
                given.append(grpc_client.InferInput(name, list(values.shape), datatype))
                given[-1].set_data_from_numpy(values)
            client.async_stream_infer("mixed" if k != 2 else "nothing", given)
        client.stop_stream()
    assert isinstance(answers[1], InferenceServerException)
    for k in (1, 3):
        np.testing.assert_allclose(answers[k - 1], mixed_scores(mixed_model, mixed_request(k, k)), rtol=0, atol=1e-6)


def test_statistics_count_requests_rows_and_failures(client: Client) -> None:
    json = {"as_json": True} if client.module is grpc_client else {}

    def counts() -> dict[str, int]:
        found = client.client.get_inference_statistics("planted", **json)["model_stats"][0]
        stages = {stage: int(value.get("count", 0)) for stage, value in found["inference_stats"].items()}
        return {**stages, "rows": int(found["inference_count"]), "executions": int(found["execution_count"])}

    client.infer("planted", planted(1))
    before = counts()
    for rows in (1, 3):
        client.infer("planted", {"ids": ("INT64", np.ones((rows, 4), dtype=np.int64))})
    with pytest.raises(InferenceServerException):
        client.infer("planted", planted(77))
    after = counts()
    grown = {key: after[key] - before[key] for key in after}
    expected = dict.fromkeys(("success", "queue", "compute_input", "compute_infer", "compute_output"), 2)
    assert grown == {**expected, "fail": 1, "cache_hit": 0, "cache_miss": 0, "rows": 4, "executions": 2}
