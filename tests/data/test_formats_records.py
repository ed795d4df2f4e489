"""HugeCTR's Raw and Facebook's binary against records packed here with `struct`."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import MakeDataset
from format_rows import assert_same, bag_dataset, files_of, one_hot_dataset

from lanner import Dataset
from lanner.data.formats import convert, open_source
from lanner.data.formats.hugectr_raw import MLPERF_HOTNESS, MLPERF_ROWS
from lanner.errors import ConfigError, DataError, IdRangeError
from lanner.schema import Schema

HOTNESS, SIZES = (1, 3, 2), (5, 1000, 70_000)
STARTS = (0, 5, 1005)


def rows_of(count: int, seed: int = 0) -> list[tuple[int, list[float], list[list[int]]]]:
    random = np.random.default_rng(seed)
    ids = [[random.integers(0, s, h).tolist() for h, s in zip(HOTNESS, SIZES, strict=True)] for _ in range(count)]
    dense = random.normal(size=(count, 2)).astype(np.float32).tolist()
    return [(int(random.integers(2)), dense[row], ids[row]) for row in range(count)]


def packed(rows: list[Any], form: str, starts: tuple[int, ...] = (0, 0, 0)) -> bytes:
    out = b""
    for label, dense, ids in rows:
        keys = [key + start for bag, start in zip(ids, starts, strict=True) for key in bag]
        out += struct.pack(form, label, *dense, *keys)
    return out


READ = {"numbers": 2, "hotness": "1,3,2", "sizes": "5,1000,70000"}


@pytest.mark.parametrize("offsets", [False, True])
def test_multi_hot_floats(tmp_path: Path, offsets: bool) -> None:
    rows = rows_of(40)
    data = packed(rows, "<3f6I", STARTS if offsets else (0, 0, 0))
    assert len(data) == 40 * 4 * (1 + 2 + 6)
    (tmp_path / "train_data.bin").write_bytes(data)
    options = {**READ, "offsets": str(offsets)}
    convert(tmp_path / "train_data.bin", tmp_path / "ours", "lanner", "hugectr-raw", read=options, quiet=True)
    batch = Dataset.open(tmp_path / "ours").split("train").slice(0, 40)  # type: ignore[union-attr]
    assert np.array_equal(batch.dense.numpy(), np.array([row[1] for row in rows], np.float32))
    assert batch.labels[:, 0].tolist() == [row[0] for row in rows]
    expected = [key for slot in range(3) for row in rows for key in row[2][slot]]
    assert batch.bags.values.tolist() == expected
    convert(tmp_path / "ours", tmp_path / "back", "hugectr-raw", write={"offsets": str(offsets)}, quiet=True)
    assert (tmp_path / "back/train_data.bin").read_bytes() == data
    convert(tmp_path / "back", tmp_path / "again", "lanner", quiet=True)  # format.json and schema.yaml say it all
    assert_same(tmp_path / "ours", tmp_path / "again")


def test_one_hot_integers(tmp_path: Path) -> None:
    """Counts become ln(1 + x), and come back as the counts they were, up to the largest of 32 bits."""
    counts = [0, 1, 7, 1_000_000, 2**31 - 1, 4_000_000_000]
    data = b"".join(struct.pack("<i1I1I", at % 2, count, at) for at, count in enumerate(counts))
    (tmp_path / "train_data.bin").write_bytes(data)
    options = {"dense": "int", "numbers": 1, "hotness": "1", "sizes": "6"}
    convert(tmp_path / "train_data.bin", tmp_path / "ours", "lanner", "hugectr-raw", read=options, quiet=True)
    dataset = Dataset.open(tmp_path / "ours")
    assert dataset.schema.dense[0].transform == "log1p_clip0"
    dense = dataset.split("train").slice(0, 6).dense[:, 0].numpy()  # type: ignore[union-attr]
    assert np.array_equal(dense, np.log1p(np.array(counts, np.float64)).astype(np.float32))
    convert(tmp_path / "train_data.bin", tmp_path / "raw", "hugectr-raw", "hugectr-raw", read=options,
            write={"dense": "int"}, quiet=True)  # fmt: skip
    assert (tmp_path / "raw/train_data.bin").read_bytes() == data
    convert(tmp_path / "ours", tmp_path / "back", "hugectr-raw", write={"dense": "int"}, quiet=True)
    convert(tmp_path / "back", tmp_path / "again", "lanner", quiet=True)
    assert_same(tmp_path / "ours", tmp_path / "again")


def test_the_layout_of_mlperf(tmp_path: Path) -> None:
    """1 label, 13 floats, 214 keys: 912 bytes a sample."""
    random = np.random.default_rng(0)
    keys = np.concatenate(
        [random.integers(0, r, (9, h)) for r, h in zip(MLPERF_ROWS, MLPERF_HOTNESS, strict=True)], axis=1
    )
    dense = random.normal(size=(9, 13)).astype("<f4")
    data = b"".join(struct.pack("<i13f214i", 1, *dense[row], *keys[row]) for row in range(9))
    assert len(data) == 9 * 912
    (tmp_path / "val_data.bin").write_bytes(data)
    options = {"hotness": "mlperf", "sizes": "mlperf", "label": "int"}
    source = open_source(tmp_path, "hugectr-raw", options=options)
    assert source.rows == {"valid": 9}
    assert source.details() == {"record_bytes": 912}
    done = convert(tmp_path, tmp_path / "ours", "lanner", "hugectr-raw", read=options, quiet=True)
    assert done.rows == {"valid": 9}
    options = {"label": "int"}
    convert(tmp_path / "ours", tmp_path / "back", "hugectr-raw", write=options, quiet=True)
    assert (tmp_path / "back/val_data.bin").read_bytes() == data


def test_tables_of_unknown_size_are_measured(tmp_path: Path) -> None:
    (tmp_path / "train_data.bin").write_bytes(packed(rows_of(10), "<3f6I"))
    (tmp_path / "test_data.bin").write_bytes(packed([(1, [0.0, 0.0], [[4], [999, 0, 0], [0, 69_999]])], "<3f6I"))
    options = {"numbers": 2, "hotness": "1,3,2"}
    convert(tmp_path, tmp_path / "ours", "lanner", "hugectr-raw", read=options, quiet=True)
    schema = Dataset.open(tmp_path / "ours").schema
    assert [table.rows for table in schema.tables] == [5, 1000, 70_000]
    assert [feature.encoder.size for feature in schema.sparse] == [5, 1000, 70_000]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("cut", "options", "error", "message"),
    [
        (1, READ, DataError, "359 bytes are no whole number of rows of 36 bytes"),
        (0, {**READ, "hotness": "1,3,4"}, DataError, "360 bytes are no whole number of rows of 44 bytes"),
        (0, {**READ, "sizes": "5,1000"}, ConfigError, "2 sizes for 3 slots"),
        (0, {}, ConfigError, "no schema; give one, or the option hotness"),
        (0, {**READ, "hotness": "1,x"}, ConfigError, "option 'hotness.1'"),
        (0, {**READ, "hotnes": "1"}, ConfigError, "'hotnes' = '1': no such option; there are: dense, label"),
        (0, {"numbers": 2, "hotness": "1,3,2", "offsets": "true"}, ConfigError, "offsets of slots need the size"),
    ],
)
def test_what_does_not_fit_is_refused_before_rows_are_read(
    tmp_path: Path, cut: int, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    data = packed(rows_of(10), "<3f6I")
    (tmp_path / "some.bin").write_bytes(data[: len(data) - cut])
    with pytest.raises(error, match=message):
        open_source(tmp_path / "some.bin", "hugectr-raw", options=options)


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        ((1, [0.0, 0.0], [[5], [0] * 3, [0] * 2]), IdRangeError, r"row 3, column 'C1': id 5 lies outside .* \(0..4\)"),
        ((1, [0.0, 0.0], [[0], [0] * 3, [0, 70_000]]), IdRangeError, "row 3, column 'C3': id 70000 lies outside"),
        ((2, [0.0, 0.0], [[0], [0] * 3, [0] * 2]), DataError, "row 3, column 'label': label 2.0, expected 0 or 1"),
        ((0, [0.0, np.nan], [[0], [0] * 3, [0] * 2]), DataError, "row 3, column 'I2': nan is not a finite number"),
    ],
)
def test_rows_that_break_the_schema_are_named(tmp_path: Path, row: Any, error: type[Exception], message: str) -> None:
    (tmp_path / "some.bin").write_bytes(packed([*rows_of(3), row, *rows_of(3)], "<3f6I"))
    with pytest.raises(error, match=f"some.bin: {message}"):
        convert(tmp_path / "some.bin", tmp_path / "ours", "lanner", "hugectr-raw", read=READ, quiet=True)
    assert not (tmp_path / "ours").exists()


def test_files_cut_after_the_conversion_are_noticed(make_dataset: MakeDataset, tmp_path: Path) -> None:
    convert(bag_dataset(make_dataset, {"train": 10}), tmp_path / "raw", "hugectr-raw", quiet=True)
    file = tmp_path / "raw/train_data.bin"
    file.write_bytes(file.read_bytes()[: -4 * 9])
    with pytest.raises(DataError, match=r"train has 9 rows, format.json says 10"):
        open_source(tmp_path / "raw")


def criteo_records(rows: int) -> tuple[bytes, np.ndarray[Any, Any]]:
    random = np.random.default_rng(3)
    words = np.concatenate(
        [random.integers(0, 2, (rows, 1)), random.integers(0, 5000, (rows, 13)), random.integers(0, 90, (rows, 26))],
        axis=1,
    )
    return b"".join(struct.pack("<40i", *row) for row in words.tolist()), words


def test_facebook_binary(tmp_path: Path) -> None:
    data, words = criteo_records(50)
    assert len(data) == 50 * 160
    (tmp_path / "theirs").mkdir()
    for name in ("train", "val", "test"):
        (tmp_path / f"theirs/{name}_data.bin").write_bytes(data)
    convert(tmp_path / "theirs", tmp_path / "ours", "lanner", "facebook-binary", quiet=True)
    batch = Dataset.open(tmp_path / "ours").split("valid").slice(0, 50)  # type: ignore[union-attr]
    assert np.array_equal(batch.dense.numpy(), np.log1p(words[:, 1:14].astype(np.float64)).astype(np.float32))
    assert np.array_equal(batch.bags.values.numpy().reshape(26, 50), words[:, 14:].T)
    convert(tmp_path / "ours", tmp_path / "back", "facebook-binary", quiet=True)
    carried = ("format.json", "schema.yaml")
    assert files_of(tmp_path / "back", *carried) == files_of(tmp_path / "theirs", *carried)
    convert(tmp_path / "theirs", tmp_path / "less", "lanner", "facebook-binary", read={"modulo": "7"}, quiet=True)
    less = Dataset.open(tmp_path / "less").split("train").slice(0, 50)  # type: ignore[union-attr]
    assert np.array_equal(less.bags.values.numpy().reshape(26, 50), words[:, 14:].T % 7)


def test_real_rows_as_facebook_binary(shared_data: Path, tmp_path: Path) -> None:
    """Counts are recovered from their logarithms, and give the same logarithms again."""
    import lanner as ln

    file = str(shared_data / "criteo_kaggle_10k.tsv.gz")
    ln.prep(file, out=tmp_path / "criteo", min_count=2, quiet=True)
    convert(tmp_path / "criteo", tmp_path / "facebook", "facebook-binary", quiet=True)
    assert (tmp_path / "facebook/train_data.bin").stat().st_size == 8000 * 160
    convert(tmp_path / "facebook", tmp_path / "back", "lanner", quiet=True)
    assert_same(tmp_path / "criteo", tmp_path / "back")
    assert files_of(tmp_path / "criteo", "manifest.json") == files_of(tmp_path / "back", "manifest.json")


def test_numbers_that_are_no_counts_are_refused(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = one_hot_dataset(make_dataset, {"train": 20})
    with pytest.raises(DataError, match=r"row 0, column 'd1': .* comes from no integer by none"):
        convert(dataset, tmp_path / "out", "hugectr-raw", write={"dense": "int"}, quiet=True)
    with pytest.raises(ConfigError, match="26 one-hot features; the schema 1 labels, 3 numbers, 3 features"):
        convert(dataset, tmp_path / "out", "facebook-binary", quiet=True)
    values = Schema.load(dataset / "schema.yaml").model_dump(mode="json")
    assert values["dense"][0]["transform"] == "none"
