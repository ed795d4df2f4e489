"""What holds for every format: it trains, it is whole or not there, its memory does not grow with the rows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from dataset_files import MakeDataset
from format_rows import assert_same, bag_dataset, files_of, one_hot_dataset

from lanner import Dataset, storage
from lanner.data.formats import convert, open_source
from lanner.errors import ConfigError, DataError
from lanner.schema import Schema
from lanner.train.recipe import load
from lanner.train.run import train

FORMATS = ["parquet", "arrow", "hugectr-parquet", "hugectr-norm", "hugectr-raw", "nvidia-binary", "mlperf"]
RECIPE = "model: {name: dlrm, dim: 4, bottom: [8, 4], top: [8, 1]}\nbatch_size: 64\nseed: 1\n"


def trained(data: Path, out: Path) -> list[float]:
    recipe = out.with_suffix(".yaml")
    recipe.write_text(RECIPE)
    result = train(load(recipe, [f"data={data}", f"out={out}"]))
    return [result["test"][name] for name in ("auc", "log_loss")]


@pytest.mark.parametrize("name", FORMATS)
def test_what_comes_back_trains_like_what_went(make_dataset: MakeDataset, tmp_path: Path, name: str) -> None:
    halves, dataset = tmp_path / "halves", bag_dataset(make_dataset, {"train": 200, "valid": 50, "test": 100})
    convert(dataset, halves, "lanner", write={"dense_type": "float16"}, quiet=True)
    convert(halves, tmp_path / "theirs", name, quiet=True)
    convert(tmp_path / "theirs", tmp_path / "back", "lanner", quiet=True)
    assert trained(tmp_path / "back", tmp_path / "ours") == trained(halves, tmp_path / "first")


@pytest.mark.parametrize("rows", [1, 37])
@pytest.mark.parametrize("name", FORMATS)
def test_very_few_rows(make_dataset: MakeDataset, tmp_path: Path, name: str, rows: int) -> None:
    dataset = one_hot_dataset(make_dataset, {"train": rows})
    convert(dataset, tmp_path / "theirs", name, quiet=True)
    options = {"read": {"sizes": "10,300,70000"}} if name == "hugectr-parquet" else {}
    convert(tmp_path / "theirs", tmp_path / "back", "lanner", quiet=True, **options)  # type: ignore[arg-type]
    back = Dataset.open(tmp_path / "back").train
    assert back is not None
    assert torch.equal(back.slice(0, rows).bags.values, Dataset.open(dataset).train.slice(0, rows).bags.values)  # type: ignore[union-attr]


def test_a_chain_through_all_formats_loses_nothing(criteo: Path, tmp_path: Path) -> None:
    """The real rows, with the labels, vocabularies and unknown ids they have."""
    last = criteo
    for at, name in enumerate(FORMATS):
        convert(last, tmp_path / str(at), name, quiet=True)
        last = tmp_path / str(at)
    convert(last, tmp_path / "back", "lanner", write={"dense_type": "float16"}, quiet=True)
    assert files_of(criteo, "manifest.json") == files_of(tmp_path / "back", "manifest.json")


def test_without_its_vocabularies_a_schema_takes_ids(criteo: Path, tmp_path: Path) -> None:
    convert(criteo, tmp_path / "theirs", "parquet", quiet=True)
    storage.remove(tmp_path / "theirs/vocab")
    convert(tmp_path / "theirs", tmp_path / "back", "lanner", quiet=True)
    assert_same(criteo, tmp_path / "back")
    schema = Dataset.open(tmp_path / "back").schema
    assert {feature.encoder.kind for feature in schema.sparse} == {"identity"}
    assert not any(table.vocabulary for table in schema.tables)


def test_a_thousand_and_three_distinct_ids_all_arrive(tmp_path: Path) -> None:
    """A last block of three rows in every unit there is; no key may be lost."""
    ids = np.random.default_rng(0).permutation(1003)
    pq.write_table(pa.table({"id": ids, "label": ids % 2}), tmp_path / "a.parquet", row_group_size=100)
    convert(tmp_path / "a.parquet", tmp_path / "norm", "hugectr-norm", write={"records": 100}, quiet=True)
    convert(tmp_path / "norm", tmp_path / "ours", "lanner", quiet=True)
    values = Dataset.open(tmp_path / "ours").train.slice(0, 1003).bags.values  # type: ignore[union-attr]
    assert np.array_equal(values.numpy(), ids)


def test_an_existing_folder_is_replaced_only_when_told(make_dataset: MakeDataset, tmp_path: Path) -> None:
    first, second = (one_hot_dataset(make_dataset, {"train": rows}, f"d{rows}") for rows in (10, 20))
    convert(first, tmp_path / "out", "hugectr-raw", quiet=True)
    before = files_of(tmp_path / "out")
    with pytest.raises(ConfigError, match="out exists; choose another place or overwrite it"):
        convert(second, tmp_path / "out", "hugectr-raw", quiet=True)
    with pytest.raises(DataError, match="comes from no integer"):  # fails while writing: what was there stays
        convert(second, tmp_path / "out", "hugectr-raw", write={"dense": "int"}, overwrite=True, quiet=True)
    assert files_of(tmp_path / "out") == before
    convert(second, tmp_path / "out", "hugectr-norm", overwrite=True, quiet=True)
    assert open_source(tmp_path / "out").rows == {"train": 20}
    assert not (tmp_path / "out/train_data.bin").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d10", "d20", "out"]


def test_nothing_is_converted_over_itself(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = one_hot_dataset(make_dataset, {"train": 10})
    convert(dataset, "memory://formats/self", "hugectr-raw", overwrite=True, quiet=True)
    for source in ("memory://formats/self", "memory://formats/self/train_data.bin"):
        with pytest.raises(ConfigError, match="memory://formats/self holds what is read"):
            convert(source, "memory://formats/self/", "hugectr-norm", overwrite=True, quiet=True)
    assert open_source("memory://formats/self").rows == {"train": 10}


def test_a_remote_folder_is_emptied_after_an_error(make_dataset: MakeDataset) -> None:
    dataset = one_hot_dataset(make_dataset, {"train": 10})
    with pytest.raises(DataError, match="comes from no integer"):
        convert(dataset, "memory://formats/broken", "hugectr-raw", write={"dense": "int"}, quiet=True)
    assert not storage.exists("memory://formats/broken")


def test_a_dataset_with_another_schema_is_refused(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = one_hot_dataset(make_dataset, {"train": 10})
    convert(dataset, tmp_path / "arrow", "arrow", quiet=True)
    values = Schema.load(dataset / "schema.yaml").model_dump(mode="json")
    values["sparse"][0]["name"] = values["tables"][0]["name"] = "other"
    values["sparse"][0]["table"] = None
    with pytest.raises(DataError, match="column 'other' is missing; the file has label, d0, d1, d2, s0, s1, s2"):
        convert(tmp_path / "arrow", tmp_path / "out", "lanner", schema=Schema.parse(values), quiet=True)


@pytest.mark.slow
def test_a_killed_conversion_leaves_nothing_that_looks_complete(tmp_path: Path) -> None:
    rows = 400_000
    table = pa.table({f"c{at}": np.arange(rows) % (at + 7) for at in range(20)})
    pq.write_table(table, tmp_path / "a.parquet")
    command = [sys.executable, "-m", "lanner.cli.main", "convert", str(tmp_path / "a.parquet"), str(tmp_path / "out")]
    process = subprocess.Popen(command)
    building = tmp_path / ".out.building"
    for _ in range(3000):
        if any(building.rglob(".part-*")):
            break
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out").exists()
    assert building.exists()
    convert(tmp_path / "a.parquet", tmp_path / "out", "lanner", quiet=True)
    assert len(Dataset.open(tmp_path / "out").train) == rows  # type: ignore[arg-type]
    assert not building.exists()


_PEAK = """
import resource, sys
from lanner.data.formats import convert
convert(sys.argv[1], sys.argv[2], "lanner", schema=sys.argv[3], quiet=True)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_a_row_group(tmp_path: Path) -> None:
    """One row group of 5 million rows and 40 columns, 800 MB decoded."""
    rows, low = 5_000_000, np.arange(5_000_000, dtype=np.int32) % 10
    columns = {f"c{at}": pa.array(low) for at in range(40)}
    pq.write_table(pa.table(columns), tmp_path / "huge.parquet", row_group_size=rows)
    pq.write_table(pa.table({name: array[:50_000] for name, array in columns.items()}), tmp_path / "tiny.parquet")
    sparse = [{"name": name, "raw": "int", "encoder": {"kind": "identity", "size": 10}} for name in columns]
    schema = Schema.parse({"sparse": sparse, "tables": [{"name": name, "rows": 10} for name in columns]})
    schema.save(tmp_path / "given.yaml")
    peaks = []
    for name in ("tiny", "huge"):
        command = [sys.executable, "-c", _PEAK, str(tmp_path / f"{name}.parquet"), str(tmp_path / name)]
        command.append(str(tmp_path / "given.yaml"))
        peaks.append(int(subprocess.run(command, capture_output=True, check=True, text=True).stdout))
    assert peaks[1] - peaks[0] < 400 << 10  # KiB: half the decoded size
