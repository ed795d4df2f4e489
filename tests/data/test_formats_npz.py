"""MLPerf's and Facebook's NumPy files against files saved here with NumPy."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import MakeDataset
from format_rows import assert_same, bag_dataset

import lanner as ln
from lanner import Dataset
from lanner.data.formats import convert, open_source
from lanner.errors import ConfigError, DataError, IdRangeError

HOTNESS, SIZES = (1, 3, 2), (5, 1000, 70_000)


def day(folder: Path, number: int, rows: int, compressed: bool = False) -> dict[str, Any]:
    """One day in MLPerf's layout."""
    random = np.random.default_rng(number)
    folder.mkdir(parents=True, exist_ok=True)
    ids = {
        str(at): random.integers(0, size, (rows, width)).astype(np.int32)
        for at, (size, width) in enumerate(zip(SIZES, HOTNESS, strict=True))
    }
    dense = random.normal(size=(rows, 2)).astype(np.float32)
    labels = random.integers(0, 2, (rows, 1)).astype(np.int32)
    np.save(folder / f"day_{number}_dense.npy", dense)
    np.save(folder / f"day_{number}_labels.npy", labels)
    (np.savez_compressed if compressed else np.savez)(folder / f"day_{number}_sparse_multi_hot.npz", **ids)
    return {"dense": dense, "labels": labels, **ids}


def read(folder: Path, split: str) -> Any:
    rows = Dataset.open(folder).split(split)
    assert rows is not None
    return rows.slice(0, len(rows))


@pytest.mark.parametrize("compressed", [False, True])
def test_days_made_elsewhere(tmp_path: Path, compressed: bool) -> None:
    """The last day's first half, rounded up, is for validation."""
    days = {number: day(tmp_path / "theirs", number, rows, compressed) for number, rows in ((0, 30), (2, 7), (23, 9))}
    options = {"sizes": "5,1000,70000"}
    done = convert(tmp_path / "theirs", tmp_path / "ours", "lanner", read=options, quiet=True)
    assert (done.read_as, done.rows) == ("mlperf", {"train": 37, "valid": 5, "test": 4})
    parts = {
        "train": {k: np.concatenate([days[0][k], days[2][k]]) for k in days[0]},
        "valid": {k: v[:5] for k, v in days[23].items()},
        "test": {k: v[5:] for k, v in days[23].items()},
    }
    for split, expected in parts.items():
        batch = read(tmp_path / "ours", split)
        assert np.array_equal(batch.dense.numpy(), expected["dense"])
        assert np.array_equal(batch.labels.numpy(), expected["labels"])
        flat = np.concatenate([expected[str(at)].reshape(-1) for at in range(3)])
        assert np.array_equal(batch.bags.values.numpy(), flat)
    assert [f.hotness for f in Dataset.open(tmp_path / "ours").schema.sparse] == list(HOTNESS)


def test_what_we_write_numpy_reads(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = bag_dataset(make_dataset, {"train": 40_000, "valid": 5, "test": 6})
    convert(dataset, tmp_path / "theirs", "mlperf", quiet=True)
    batch, folder = read(dataset, "train"), tmp_path / "theirs"
    assert np.array_equal(np.load(folder / "day_0_dense.npy"), batch.dense.numpy())
    labels = np.load(folder / "day_0_labels.npy")
    assert (labels.dtype, labels.shape) == (np.dtype(np.int32), (40_000, 1))
    with np.load(folder / "day_0_sparse_multi_hot.npz") as members:
        arrays = [members[str(at)] for at in range(3)]
    assert [(a.dtype.name, a.shape) for a in arrays] == [("int32", (40_000, width)) for width in (1, 3, 2)]
    assert np.array_equal(np.concatenate([a.reshape(-1) for a in arrays]), batch.bags.values.numpy())
    with zipfile.ZipFile(folder / "day_0_sparse_multi_hot.npz") as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
    convert(folder, "memory://formats/mlperf", "mlperf", quiet=True)
    convert("memory://formats/mlperf", tmp_path / "back", "lanner", quiet=True)
    assert_same(dataset, tmp_path / "back")


def test_one_hot_days_with_ids_modulo_the_tables(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 10**9, (20, 3))
    np.save(tmp_path / "day_0_dense.npy", np.zeros((20, 13), np.float32))
    np.save(tmp_path / "day_0_labels.npy", np.ones((20, 1), np.int32))
    np.save(tmp_path / "day_0_sparse.npy", ids)
    options = {"sizes": "5,1000,70000"}
    with pytest.raises(IdRangeError, match=r"day_0_sparse.npy: row 0, column 'C1': id \d+ lies outside"):
        convert(tmp_path, tmp_path / "ours", "lanner", "mlperf", read=options, quiet=True)
    convert(tmp_path, tmp_path / "ours", "lanner", "mlperf", read={**options, "modulo": "true"}, quiet=True)
    values = read(tmp_path / "ours", "train").bags.values.numpy().reshape(3, 20)
    assert np.array_equal(values.T, ids % np.array([5, 1000, 70_000]))
    with pytest.raises(ConfigError, match="modulo needs the sizes of all tables"):
        open_source(tmp_path, "mlperf", options={"modulo": "true"})


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: cut(f / "day_0_dense.npy", 300), "day_0_dense.npy: 300 bytes, its header says 368"),
        (lambda f: cut(f / "day_0_dense.npy", 5), "day_0_dense.npy: no .npy array"),
        (lambda f: cut(f / "day_0_sparse_multi_hot.npz", 900), "multi_hot.npz: no whole .npz archive"),
        (lambda f: (f / "day_0_dense.npy").unlink(), "day_0_dense.npy: no such file"),
        (lambda f: np.save(f / "day_0_labels.npy", np.zeros((29, 1), np.int32)), "dense.npy: 30 rows, but .* has 29"),
        (lambda f: np.save(f / "day_0_dense.npy", np.zeros((2, 30)).T), "in column order; expected rows of numbers"),
        (lambda f: np.savez(f / "day_0_sparse_multi_hot.npz", x=np.zeros((30, 1))), "members x; expected 0, 1, 2"),
    ],
)
def test_files_that_do_not_add_up(tmp_path: Path, damage: Any, message: str) -> None:
    day(tmp_path, 0, 30)
    damage(tmp_path)
    with pytest.raises(DataError, match=message):
        open_source(tmp_path)


def facebook(path: Path, rows: int, seed: int, kind: Any = np.float64, **extra: Any) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {"X_int": random.integers(0, 3000, (rows, 13)).astype(np.int32)}
    found |= {"X_cat": random.integers(0, 90, (rows, 26)).astype(kind), "y": random.integers(0, 2, rows)}
    np.savez_compressed(path, **found, **extra)
    return found


def test_facebook_days(tmp_path: Path) -> None:
    """Of the last day the first half is for test; ids are stored as float64."""
    days = [facebook(tmp_path / f"theirs/kaggle_{at}_reordered.npz", rows, at) for at, rows in enumerate((20, 11, 7))]
    done = convert(tmp_path / "theirs", tmp_path / "ours", "lanner", quiet=True)
    assert (done.read_as, done.rows) == ("facebook-npz", {"train": 31, "valid": 3, "test": 4})
    batch = read(tmp_path / "ours", "test")
    assert np.array_equal(batch.bags.values.numpy().reshape(26, 4), days[2]["X_cat"][:4].T)
    assert np.array_equal(batch.dense.numpy(), np.log1p(days[2]["X_int"][:4].astype(np.float64)).astype(np.float32))
    assert batch.labels[:, 0].tolist() == days[2]["y"][:4].tolist()


def test_one_facebook_file_with_its_counts(tmp_path: Path) -> None:
    found = facebook(tmp_path / "kaggle_processed.npz", 40, 1, counts=np.full(26, 95))
    done = convert(tmp_path / "kaggle_processed.npz", tmp_path / "ours", "lanner", quiet=True)
    assert done.rows == {"train": 40}
    assert {table.rows for table in Dataset.open(tmp_path / "ours").schema.tables} == {95}
    convert(tmp_path / "kaggle_processed.npz", tmp_path / "less", "lanner", read={"modulo": "7"}, quiet=True)
    values = read(tmp_path / "less", "train").bags.values.numpy().reshape(26, 40)
    assert np.array_equal(values.T, found["X_cat"] % 7)


def test_real_rows_as_facebook_npz(shared_data: Path, tmp_path: Path) -> None:
    file = str(shared_data / "criteo_kaggle_10k.tsv.gz")
    ln.prep(file, out=tmp_path / "criteo", min_count=2, quiet=True)
    convert(tmp_path / "criteo", tmp_path / "theirs", "facebook-npz", quiet=True)
    with np.load(tmp_path / "theirs/train_processed.npz") as found:
        assert {name: found[name].shape for name in found} == {
            "X_cat": (8000, 26), "X_int": (8000, 13), "y": (8000,), "counts": (26,),
        }  # fmt: skip
    convert(tmp_path / "theirs", tmp_path / "back", "lanner", quiet=True)
    assert_same(tmp_path / "criteo", tmp_path / "back")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f["X_cat"].__setitem__((3, 5), 1.5), r"row 3, column 'C6': 1.5 cannot be kept as int64"),
        (lambda f: f["X_cat"].__setitem__((3, 5), -1), r"row 3, column 'C6': id -1 lies outside"),
        (lambda f: f["y"].__setitem__(3, 2), r"row 3, column 'label': label 2, expected 0 or 1"),
        (lambda f: f.pop("y"), "no member y; it holds X_int, X_cat"),
        (lambda f: f.update(X_cat_t=f.pop("X_cat").T), "no member X_cat; it holds raw values, an earlier stage"),
        (lambda f: f.update(X_int=f["X_int"][:, :12]), "12 numbers of int32 a row, expected 13"),
    ],
)
def test_facebook_files_that_cannot_be(tmp_path: Path, change: Any, message: str) -> None:
    found = facebook(tmp_path / "first.npz", 10, 0)
    change(found)
    if "X_cat_t" in found:
        found["X_cat_t"] = np.ascontiguousarray(found["X_cat_t"])
    np.savez(tmp_path / "some.npz", **found)
    with pytest.raises(DataError, match=f"some.npz: {message}"):
        convert(tmp_path / "some.npz", tmp_path / "ours", "lanner", quiet=True)
