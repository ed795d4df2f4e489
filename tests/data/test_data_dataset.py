"""Opening datasets: what is refused, and how."""

from __future__ import annotations

import shutil
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dataset_files import MakeDataset, make_rows, make_schema

from lanner import manifest
from lanner.data import Dataset, Split
from lanner.errors import DataError, SchemaError
from lanner.manifest import Manifest


@pytest.fixture
def two_parts(make_dataset: MakeDataset) -> Path:
    schema = make_schema()
    files = {f"train/part-{index:05d}.arrow": make_rows(schema, 50, index) for index in range(2)}
    return make_dataset(schema, {**files, "test/part-00000.arrow": make_rows(schema, 7)})


def test_splits_have_the_rows_of_their_files(two_parts: Path) -> None:
    dataset = Dataset.open(two_parts)
    assert dataset.train is not None and dataset.train.rows == 100
    assert dataset.test is not None and len(dataset.test) == 7
    assert dataset.valid is None
    assert dataset.train is dataset.train
    assert Split.open(str(two_parts / "test")).rows == 7


def test_a_split_that_is_not_there_is_named(two_parts: Path) -> None:
    with pytest.raises(DataError, match="no files in 'valid'"):
        Split.open(f"{two_parts}/valid/")


def test_a_path_that_is_no_split_is_told_what_it_is(two_parts: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is a dataset; name a split, e\.g\. .*/test$"):
        Split.open(str(two_parts))
    for missing in (tmp_path / "nowhere", tmp_path / "nowhere" / "test"):
        with pytest.raises(DataError, match=f"^{missing}: no such directory"):
            Split.open(str(missing))
    with pytest.raises(DataError, match="nowhere: no such directory"):
        Dataset.open(tmp_path / "nowhere")


def test_an_unfinished_directory_is_refused(two_parts: Path) -> None:
    (two_parts / "manifest.json").unlink()
    with pytest.raises(DataError, match="not a finished dataset"):
        Dataset.open(two_parts)


def test_a_missing_and_a_short_file_are_named(two_parts: Path) -> None:
    part = two_parts / "train" / "part-00001.arrow"
    data = part.read_bytes()
    part.write_bytes(data[:-10])
    with pytest.raises(DataError, match=r"part-00001\.arrow: \d+ bytes, the manifest says"):
        Dataset.open(two_parts)
    part.unlink()
    with pytest.raises(DataError, match=r"part-00001\.arrow: listed in the manifest but missing"):
        Dataset.open(two_parts)


def test_a_changed_schema_is_refused(two_parts: Path) -> None:
    make_schema(rows=(11, 300, 70_000)).save(two_parts / "schema.yaml")
    with pytest.raises(SchemaError, match="the schema was changed"):
        Dataset.open(two_parts)


def test_a_flipped_bit_is_found_on_first_use(two_parts: Path) -> None:
    part = two_parts / "train" / "part-00001.arrow"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    dataset = Dataset.open(two_parts)
    assert dataset.test is not None
    with pytest.raises(DataError, match=r"part-00001\.arrow: checksum"):
        _ = dataset.train
    assert Dataset.open(two_parts, verify=False).train is not None


def test_a_damaged_footer_is_named(two_parts: Path) -> None:
    part = two_parts / "train" / "part-00001.arrow"
    data = bytearray(part.read_bytes())
    data[-6:] = b"ARROW2"
    part.write_bytes(data)
    with pytest.raises(DataError, match=r"part-00001\.arrow: damaged Arrow file"):
        _ = Dataset.open(two_parts, verify=False).train


def test_a_wrong_row_count_is_named(two_parts: Path) -> None:
    described = manifest.read(two_parts, "dataset")
    files = {name: entry.model_copy(update={"rows": 49}) for name, entry in described.files.items()}
    manifest.write(two_parts, described.model_copy(update={"files": files}))
    with pytest.raises(DataError, match="50 rows, the manifest says 49"):
        _ = Dataset.open(two_parts).train


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("s1", None, "column 's1' is missing; the file has label, dense, s0, s2"),
        ("s1", pa.array(["a"] * 5), "column 's1' has type string; expected an integer"),
        ("s1", np.zeros(5, np.float32), "column 's1' has type float; expected an integer"),
        ("s1", pa.array([1, 2, None, 4, 5], pa.uint16()), "column 's1' holds nulls"),
        ("s1", pa.array([[1]] * 5), "column 's1' has type list<.*; expected an integer"),
        (
            "dense",
            np.zeros((5, 2), np.float32),
            r"column 'dense' .*; expected fixed_size_list<float32 .*>\[3\]",
        ),
        ("label", pa.array(["a"] * 5), "column 'label' has type string; expected a number"),
    ],
)
def test_columns_that_do_not_fit_the_schema_are_named(
    make_dataset: MakeDataset, column: str, values: object, message: str
) -> None:
    schema = make_schema()
    columns = {**make_rows(schema, 5), column: values}
    if values is None:
        del columns[column]
    dataset = Dataset.open(make_dataset(schema, {"train/part-00000.arrow": columns}))
    with pytest.raises(DataError, match=f"part-00000.arrow: {message}"):
        _ = dataset.train


def test_files_must_agree_on_types(make_dataset: MakeDataset) -> None:
    schema = make_schema()
    other = make_rows(schema, 5)
    other["s1"] = other["s1"].astype(np.uint32)
    files = {"train/part-00000.arrow": make_rows(schema, 5), "train/part-00001.arrow": other}
    with pytest.raises(DataError, match=r"part-00001.arrow: column 's1' has type uint32, but uint16 in .*part-00000"):
        _ = Dataset.open(make_dataset(schema, files)).train


def test_empty_files_and_batches_add_nothing(make_dataset: MakeDataset) -> None:
    schema = make_schema()
    sizes = (0, 3, 0, 2)
    files = {f"train/part-{i:05d}.arrow": make_rows(schema, size, i) for i, size in enumerate(sizes)}
    files["test/part-00000.arrow"] = make_rows(schema, 0)
    dataset = Dataset.open(make_dataset(schema, files))
    assert dataset.train is not None and dataset.train.rows == 5
    np.testing.assert_array_equal(dataset.train.slice(0, 5).dense[:, 0], [0, 1, 2, 0, 1])
    assert dataset.test is not None and dataset.test.rows == 0
    assert len(dataset.test.slice(0, 0)) == 0


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LANNER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_remote_dataset_is_downloaded_once(two_parts: Path, cache: Path) -> None:
    remote = fsspec.filesystem("memory")
    remote.put(str(two_parts), "/lanner-remote", recursive=True)
    try:
        remote_train = Dataset.open("memory://lanner-remote").train
        local_train = Dataset.open(two_parts).train
        assert remote_train is not None and local_train is not None
        assert remote_train.slice(0, 100).bags.values.equal(local_train.slice(0, 100).bags.values)
        times = {file: file.stat().st_mtime_ns for file in cache.glob("*.arrow")}
        assert len(times) == 2
        assert Dataset.open("memory://lanner-remote").train is not None
        assert {file: file.stat().st_mtime_ns for file in cache.glob("*.arrow")} == times
    finally:
        remote.rm("/lanner-remote", recursive=True)


def test_a_download_with_another_checksum_is_refused(two_parts: Path, cache: Path) -> None:
    part = two_parts / "test" / "part-00000.arrow"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    remote = fsspec.filesystem("memory")
    remote.put(str(two_parts), "/lanner-damaged", recursive=True)
    try:
        with pytest.raises(DataError, match=r"part-00000\.arrow: checksum"):
            _ = Dataset.open("memory://lanner-damaged").test
        assert not list(cache.glob("*.arrow"))
    finally:
        remote.rm("/lanner-damaged", recursive=True)


def test_parquet_parts_read_like_arrow_parts(make_dataset: MakeDataset, cache: Path) -> None:
    schema = make_schema()
    columns = make_rows(schema, 50)
    arrow = Dataset.open(make_dataset(schema, {"train/part-0.arrow": columns}, "arrow", batch_rows=7)).train
    packed = Dataset.open(make_dataset(schema, {"train/part-0.parquet": columns}, "parquet", batch_rows=9)).train
    assert arrow is not None and packed is not None
    ours, theirs = packed.slice(0, 50), arrow.slice(0, 50)
    assert ours.dense.equal(theirs.dense) and ours.labels.equal(theirs.labels)
    assert ours.bags.values.equal(theirs.bags.values)


def test_parquet_may_hold_a_column_for_each_number(make_dataset: MakeDataset, cache: Path) -> None:
    schema = make_schema(dense=2)
    columns = make_rows(schema, 5)
    dense = columns.pop("dense")
    columns |= {"d1": dense[:, 1].astype(np.float64), "d0": dense[:, 0]}
    columns["s0"] = columns["s0"].astype(np.int64)
    train = Dataset.open(make_dataset(schema, {"train/part-0.parquet": columns})).train
    assert train is not None
    np.testing.assert_array_equal(train.slice(0, 5).dense, dense)


def test_empty_parquet_files_add_nothing(make_dataset: MakeDataset, cache: Path) -> None:
    schema = make_schema()
    files = {f"train/part-{i}.parquet": make_rows(schema, size) for i, size in enumerate((0, 10, 0))}
    root = make_dataset(schema, files)
    no_groups = root / "train" / "part-2.parquet"
    pq.ParquetWriter(no_groups, pq.read_schema(root / "train" / "part-1.parquet")).close()
    described = manifest.read(root, "dataset")
    entries = {**described.files, "train/part-2.parquet": manifest.entry(root, "train/part-2.parquet", 0)}
    manifest.write(root, Manifest(kind="dataset", fingerprint=described.fingerprint, files=entries))
    train = Dataset.open(root).train
    assert train is not None and train.rows == 10


def test_damaged_parquet_is_named(make_dataset: MakeDataset, cache: Path) -> None:
    schema = make_schema()
    files = {f"train/part-{i}.parquet": make_rows(schema, 500, i) for i in range(5)}
    root = make_dataset(schema, files)
    part = root / "train" / "part-2.parquet"
    data = bytearray(part.read_bytes())
    data[4:600] = bytes(596)
    part.write_bytes(data)
    with pytest.raises(DataError, match=r"part-2\.parquet: damaged Parquet file"):
        _ = Dataset.open(root, verify=False).train
    with pytest.raises(DataError, match=r"part-2\.parquet: checksum"):
        _ = Dataset.open(root).train
    shutil.rmtree(cache, ignore_errors=True)


def test_parquet_ids_that_do_not_fit_their_table_are_named(make_dataset: MakeDataset, cache: Path) -> None:
    schema = make_schema()
    columns = make_rows(schema, 5)
    columns["s0"] = np.array([0, 1, 2, 3, 256])
    with pytest.raises(DataError, match=r"part-0\.parquet: column 's0' of type int64: .*256"):
        _ = Dataset.open(make_dataset(schema, {"train/part-0.parquet": columns})).train
