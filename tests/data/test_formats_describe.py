"""`describe` and the commands, over every format there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import MakeDataset
from format_rows import bag_dataset, one_hot_dataset
from typer.testing import CliRunner

from lanner import Dataset
from lanner.cli.main import app
from lanner.data.formats import FORMATS, convert, describe
from lanner.errors import ConfigError, DataError

WRITABLE = {"parquet", "arrow", "hugectr-parquet", "hugectr-norm", "hugectr-raw", "nvidia-binary", "mlperf"}


def lanner(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("name", sorted(WRITABLE | {"lanner"}))
def test_every_format_describes_the_same_rows(make_dataset: MakeDataset, tmp_path: Path, name: str) -> None:
    dataset = bag_dataset(make_dataset, {"train": 300, "test": 20})
    place = dataset
    if name != "lanner":
        place = tmp_path / "theirs"
        convert(dataset, place, name, quiet=True)
    found = describe(place, rows=None)
    assert (found.format, found.title, found.problems) == (name, FORMATS[name].title, [])
    assert found.rows == found.read == {"train": 300, "test": 20}
    splits = [Dataset.open(dataset).split(split) for split in ("train", "test")]
    batches = [split.slice(0, len(split)) for split in splits if split is not None]
    columns = {column.name: column for column in found.columns}
    labels = np.concatenate([batch.labels[:, 0].numpy() for batch in batches])
    assert columns["label"].mean == pytest.approx(labels.mean())
    numbers = np.concatenate([batch.dense[:, 1].numpy() for batch in batches])
    if name == "nvidia-binary":
        numbers = numbers.astype(np.float16)
    assert (columns["d1"].minimum, columns["d1"].maximum) == (numbers.min().item(), numbers.max().item())
    ones = np.concatenate([batch.bags.values[: len(batch)].numpy() for batch in batches])
    one = columns["one"]
    assert (one.minimum, one.maximum, one.distinct) == (ones.min(), ones.max(), len(np.unique(ones)))
    assert [(columns[name].least_ids, columns[name].most_ids) for name in ("one", "three", "two")] == [
        (1, 1), (3, 3), (2, 2),
    ]  # fmt: skip
    assert [columns[name].table_rows for name in ("one", "three", "two")] == [300, 70_000, 9]


def test_some_rows_are_enough(make_dataset: MakeDataset) -> None:
    found = describe(one_hot_dataset(make_dataset, {"train": 70_000}), rows=10)
    assert found.rows == {"train": 70_000}
    assert 10 <= found.read["train"] < 70_000


def test_problems_are_listed_split_by_split(make_dataset: MakeDataset, tmp_path: Path) -> None:
    convert(
        one_hot_dataset(make_dataset, {"train": 9, "valid": 9, "test": 9}), tmp_path / "raw", "hugectr-raw", quiet=True
    )
    for name, row in (("train", 3), ("test", 7)):
        words = np.fromfile(tmp_path / f"raw/{name}_data.bin", "<u4").reshape(9, 7)
        words[row, 4] = 10
        (tmp_path / f"raw/{name}_data.bin").write_bytes(words.tobytes())
    found = describe(tmp_path / "raw")
    assert [problem.partition(": id 10")[0].rpartition("/")[2] for problem in found.problems] == [
        "train_data.bin: row 3, column 's0'", "test_data.bin: row 7, column 's0'",
    ]  # fmt: skip
    assert found.read == {"train": 0, "valid": 9, "test": 0}
    (tmp_path / "raw/train_data.bin").write_bytes(b"123")
    found = describe(tmp_path / "raw")
    assert (found.format, found.rows) == ("hugectr-raw", {})
    assert "3 bytes are no whole number of rows of 28 bytes" in found.problems[0]


def test_keysets(make_dataset: MakeDataset, tmp_path: Path) -> None:
    convert(one_hot_dataset(make_dataset, {"train": 50}), tmp_path / "keys", "hugectr-keyset", quiet=True)
    found = describe(tmp_path / "keys/train/keyset")
    values = np.fromfile(tmp_path / "keys/train/keyset", "<i8")
    (column,) = found.columns
    assert (found.format, column.distinct) == ("hugectr-keyset", len(values))
    assert (column.minimum, column.maximum) == (values.min(), values.max())


def test_what_cannot_be_told(tmp_path: Path) -> None:
    (tmp_path / "some.bin").write_bytes(b"12345678")
    with pytest.raises(ConfigError, match=r"some.bin: its format cannot be told .*: lanner, parquet"):
        describe(tmp_path / "some.bin")
    with pytest.raises(DataError, match="nothing: no such file or directory"):
        describe(tmp_path / "nothing", "parquet")
    with pytest.raises(ConfigError, match="no format 'hugectr'; there are lanner"):
        describe(tmp_path / "some.bin", "hugectr")


def test_commands(make_dataset: MakeDataset, tmp_path: Path) -> None:
    """Convert there and back, inspect, damage, inspect again."""
    dataset, place, back = bag_dataset(make_dataset, {"train": 300}, ragged=True), tmp_path / "norm", tmp_path / "back"
    done = lanner("convert", str(dataset), str(place), "--to", "hugectr-norm", "--write", "records=100", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == {"train": 300}
    assert len(list(place.glob("train/*.data"))) == 3
    done = lanner("convert", str(place), str(back))
    assert done.exit_code == 0, done.output
    assert "hugectr-norm to lanner: 300 rows" in " ".join(done.stderr.split())
    assert "exists; choose another place" in str(lanner("convert", str(place), str(back)).exception)
    done = lanner("inspect", str(place), "--json")
    found = json.loads(done.stdout)
    assert (found["format"], found["rows"], found["problems"]) == ("hugectr-norm", {"train": 300}, [])
    assert "300 rows read" in lanner("inspect", str(place)).stderr
    data = bytearray((place / "train/part-00001.data").read_bytes())
    data[69 + 8] ^= 1
    (place / "train/part-00001.data").write_bytes(data)
    done = lanner("inspect", str(place))
    assert done.exit_code == 1
    assert "part-00001.data: record 0 is damaged" in " ".join(done.stderr.split())
    assert lanner("convert", str(place), str(back), "--write", "records").exit_code == 2
