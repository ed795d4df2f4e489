"""From raw logs to scores over the network: what the server says of a raw row is what the trainer says of it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

from lanner.data import Dataset
from lanner.embedding import RowWiseAdagrad
from lanner.export import export
from lanner.models import DLRM
from lanner.prep import prepare
from lanner.schema import Schema
from lanner.train import Trainer

ROWS = 1000


@pytest.fixture(scope="module")
def lines(shared_data: Path) -> list[list[str]]:
    """Fields of the first rows of the Criteo sample, without their labels."""
    with gzip.open(shared_data / "criteo_kaggle_10k.tsv.gz", "rt") as file:
        return [next(file).rstrip("\n").split("\t")[1:] for _ in range(ROWS)]


@pytest.fixture(scope="module")
def trained(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Schema, Dataset, np.ndarray, Path]:
    """Schema, dataset, the trainer's own scores of its first rows, and a repository with the model."""
    folder = tmp_path_factory.mktemp("pipeline")
    prepare(str(shared_data / "criteo_kaggle_10k.tsv.gz"), folder / "data", "criteo", min_count=5, quiet=True)
    dataset = Dataset.open(folder / "data")
    model = DLRM(dataset.schema, dim=8, bottom=(32, 8), top=(32, 1))
    trainer = Trainer(model, batch_size=512, embedding_optimizer=RowWiseAdagrad(0.05), max_steps=12, quiet=True)
    trainer.fit(dataset.train)
    export(trainer, folder / "repository", "ctr")
    return dataset.schema, dataset, trainer.predict(dataset.train)[:ROWS], folder / "repository"


@pytest.fixture(scope="module")
def ctr(start_server: Any, trained: tuple[Schema, Dataset, np.ndarray, Path]) -> Iterator[Any]:
    server = start_server(trained[3])
    yield server
    assert server.stop() == 0


def columns(schema: Schema, lines: list[list[str]]) -> dict[str, np.ndarray]:
    names = [part.source for part in (*schema.dense, *schema.sparse)]
    cells = np.array(lines, dtype=np.object_)
    return {name: cells[:, [place]] for place, name in enumerate(names)}


@pytest.mark.parametrize("way", ["http-json", "http-binary", "grpc"])
def test_raw_rows_score_as_the_trainer_says(
    trained: tuple[Schema, Dataset, np.ndarray, Path], ctr: Any, lines: list[list[str]], way: str
) -> None:
    schema, _, expected, _ = trained
    module = grpc_client if way == "grpc" else http_client
    given = []
    for name, cells in columns(schema, lines).items():
        given.append(module.InferInput(name, [ROWS, 1], "BYTES"))
        options = {"binary_data": False} if way == "http-json" else {}
        given[-1].set_data_from_numpy(cells, **options)
    with closing(ctr.grpc_client() if way == "grpc" else ctr.http_client()) as client:
        scores = client.infer("ctr", given).as_numpy("score")
    np.testing.assert_allclose(scores[:, 0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("module", [http_client, grpc_client])
def test_encoded_rows_score_as_the_trainer_says(
    trained: tuple[Schema, Dataset, np.ndarray, Path], ctr: Any, module: Any
) -> None:
    schema, dataset, expected, _ = trained
    assert dataset.train is not None
    batch = dataset.train.slice(0, ROWS)
    ids = batch.bags.values.numpy().astype(np.int64).reshape(len(schema.sparse), ROWS).T
    given = [
        module.InferInput("dense", [ROWS, len(schema.dense)], "FP32"),
        module.InferInput("ids", list(ids.shape), "INT64"),
    ]
    given[0].set_data_from_numpy(batch.dense.numpy())
    given[1].set_data_from_numpy(ids)
    with closing(ctr.grpc_client() if module is grpc_client else ctr.http_client()) as client:
        scores = client.infer("ctr", given).as_numpy("score")
    np.testing.assert_allclose(scores[:, 0], expected, rtol=0, atol=1e-6)


def test_columns_left_out_score_as_empty_ones(
    trained: tuple[Schema, Dataset, np.ndarray, Path], ctr: Any, lines: list[list[str]]
) -> None:
    cells = columns(trained[0], lines[:20])
    left_out = {name: values for name, values in cells.items() if name not in ("C7", "I3")}
    empty = {**cells, **dict.fromkeys(("C7", "I3"), np.full((20, 1), "", dtype=np.object_))}
    scores = []
    with closing(ctr.grpc_client()) as client:
        for chosen in (left_out, empty):
            given = []
            for name, values in chosen.items():
                given.append(grpc_client.InferInput(name, [20, 1], "BYTES"))
                given[-1].set_data_from_numpy(values)
            scores.append(client.infer("ctr", given).as_numpy("score"))
    np.testing.assert_array_equal(*scores)
