"""Requests from a dataset hold its rows, encoded or as they were logged."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lanner.data.dataset import Dataset
from lanner.errors import DataError, SchemaError
from lanner.perf import generate
from lanner.perf.rows import DatasetRows
from lanner.prep import prepare
from lanner.prep.encoder import Encoder
from lanner.schema import Schema

ROWS = 40
VOCAB = {"kind": "vocab", "min_count": 2, "unknown_buckets": 1}
SCHEMA = Schema.parse(
    {
        "labels": [{"name": "label"}],
        "dense": [{"name": "price"}],
        "sparse": [
            {"name": "word", "encoder": VOCAB},
            {"name": "code", "raw": "hex", "encoder": VOCAB},
            {"name": "number", "raw": "int", "encoder": VOCAB},
            {"name": "place", "raw": "int", "encoder": {"kind": "identity", "size": 9}},
            {"name": "hashed", "encoder": {"kind": "hash", "size": 50}},
            {"name": "tags", "hotness": None, "max_hotness": 3, "separator": "|", "encoder": VOCAB},
        ],
    }
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows with missing, rare and frequent values of every raw type."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    lines = ["label,price,word,code,number,place,hashed,tags"]
    for index in range(ROWS):
        k = int(rng.integers(5))
        word, number = ("", "") if k == 0 else (f"w{k}" if index % 9 else f"rare{index}", f"{-k}")
        tags = "|".join(f"t{j}" for j in rng.integers(0, 4, int(rng.integers(0, 4))))
        lines.append(f"{index % 2},{k}.5,{word},{k * 1111:x},{number},{k + 2},h{k},{tags}")
    (folder / "logs.csv").write_text("\n".join(lines) + "\n")
    SCHEMA.save(folder / "schema.yaml")
    prepare([str(folder / "logs.csv")], str(folder / "data"), "csv", str(folder / "schema.yaml"), split="none")
    return folder / "data"


def _sample(dataset: Path, form: Any, rows: int) -> tuple[generate.Tensors, DatasetRows]:
    schema = Dataset.open(dataset).schema
    source = DatasetRows(str(dataset / "train"), schema, form, np.random.default_rng(1))
    return source.sample(rows), source


def test_encoded_rows_are_those_of_the_split(dataset: Path) -> None:
    tensors, _ = _sample(dataset, "encoded", 2 * ROWS)
    ids = tensors["ids"].values
    np.testing.assert_array_equal(ids[:ROWS], ids[ROWS:])  # after the last row comes the first
    split = Dataset.open(dataset).train
    assert split is not None
    bags = split.slice(0, ROWS).bags
    assert bags.offsets is not None
    ends, values = bags.offsets.numpy(), bags.values.numpy()
    expected = [np.sort(values[ends[f * ROWS] : ends[(f + 1) * ROWS]]) for f in range(5)]
    np.testing.assert_array_equal(np.sort(ids[:ROWS], axis=0), np.stack(expected, axis=1))
    tags = tensors["tags.ids"].values[:ROWS]
    np.testing.assert_array_equal(np.sort(tags[tags >= 0]), np.sort(values[ends[5 * ROWS] :]))


def test_raw_rows_encode_to_the_same_ids(dataset: Path) -> None:
    encoded, _ = _sample(dataset, "encoded", ROWS)
    raw, _ = _sample(dataset, "raw", ROWS)
    columns = {name: tensor.values[:, 0] for name, tensor in raw.items()}
    again = Encoder.load(str(dataset)).encode(columns)
    for index, name in enumerate(("word", "code", "number", "place")):
        np.testing.assert_array_equal(again.ids[index].values, encoded["ids"].values[:, index], err_msg=name)
    tags = encoded["tags.ids"].values
    bags = [set(row[row > 0].tolist()) for row in tags]
    offsets = again.ids[5].offsets
    found = [set(again.ids[5].values[low:high].tolist()) - {0} for low, high in pairwise(offsets)]
    assert found == bags


def test_another_dataset_is_refused(dataset: Path) -> None:
    other = SCHEMA.model_copy(update={"dense": ()})
    with pytest.raises(SchemaError, match="served model differ"):
        DatasetRows(str(dataset / "train"), other, "encoded", np.random.default_rng(0))
    with pytest.raises(DataError, match="no rows there"):
        DatasetRows(str(dataset / "test"), Dataset.open(dataset).schema, "encoded", np.random.default_rng(0))
