"""Parquet and Arrow of anybody, HugeCTR's Parquet and its keysets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dataset_files import MakeDataset
from format_rows import assert_same, bag_dataset, files_of, one_hot_dataset

from lanner import Dataset
from lanner.data.formats import convert, open_source
from lanner.data.formats.hugectr_keyset import read_keys, write_keys
from lanner.errors import ConfigError, DataError, IdRangeError
from lanner.schema import Schema

BIG = 9_007_199_254_740_993  # 2^53 + 1, which float64 rounds


def table(rows: int = 50, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "user": random.integers(0, 90, rows),
            "price": random.normal(size=rows).astype(np.float32),
            "click": random.integers(0, 2, rows).astype(np.int32),
            "history": pa.array(
                [random.integers(0, 40, n).tolist() for n in random.integers(0, 4, rows)], pa.list_(pa.int64())
            ),
        }
    )


def write(path: Path, content: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(content, path, row_group_size=20)
        return
    with pa.ipc.new_file(str(path), content.schema) as writer:
        writer.write_table(content, max_chunksize=20)


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_roles_by_type_and_sizes_by_reading(tmp_path: Path, ending: str) -> None:
    parts = [table(50, 0), table(0, 1), table(30, 2)]
    for at, part in enumerate(parts):
        write(tmp_path / f"theirs/{at}.{ending}", part)
    done = convert(tmp_path / "theirs", tmp_path / "ours", "lanner", quiet=True)
    assert (done.read_as, done.rows) == (ending, {"train": 80})
    dataset, whole = Dataset.open(tmp_path / "ours"), pa.concat_tables(parts)
    assert [label.name for label in dataset.schema.labels] == ["click"]
    assert [number.name for number in dataset.schema.dense] == ["price"]
    assert [(f.name, f.hotness) for f in dataset.schema.sparse] == [("user", 1), ("history", None)]
    batch = dataset.split("train").slice(0, 80)  # type: ignore[union-attr]
    assert batch.dense[:, 0].tolist() == whole["price"].to_pylist()
    assert batch.labels[:, 0].tolist() == whole["click"].to_pylist()
    expected = whole["user"].to_pylist() + [value for row in whole["history"].to_pylist() for value in row]
    assert batch.bags.values.tolist() == expected
    assert dataset.schema.table("user").rows == max(whole["user"].to_pylist()) + 1


@pytest.mark.parametrize("to", ["parquet", "arrow", "hugectr-parquet"])
@pytest.mark.parametrize("ragged", [False, True])
def test_there_and_back(make_dataset: MakeDataset, tmp_path: Path, to: str, ragged: bool) -> None:
    dataset = bag_dataset(make_dataset, {"train": 500, "valid": 3, "test": 40}, ragged)
    convert(dataset, tmp_path / "theirs", to, write={"rows": 1000}, quiet=True)
    convert(tmp_path / "theirs", f"memory://formats/{to}{ragged}", to, quiet=True)
    convert(f"memory://formats/{to}{ragged}", tmp_path / "back", "lanner", quiet=True)
    assert_same(dataset, tmp_path / "back")


@pytest.mark.parametrize("to", ["parquet", "arrow", "hugectr-parquet"])
def test_real_rows(criteo: Path, tmp_path: Path, to: str) -> None:
    convert(criteo, tmp_path / "theirs", to, quiet=True)
    convert(tmp_path / "theirs", tmp_path / "back", "lanner", write={"dense_type": "float16"}, quiet=True)
    assert files_of(criteo, "manifest.json") == files_of(tmp_path / "back", "manifest.json")


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_files_without_rows(tmp_path: Path, ending: str) -> None:
    """No row group, one without rows, ten rows over several pages."""
    empty = table(0)
    if ending == "parquet":
        (tmp_path / "some").mkdir()
        pq.ParquetWriter(tmp_path / "some/0.parquet", empty.schema).close()
        write(tmp_path / "some/1.parquet", empty)
        pq.write_table(table(10), tmp_path / "some/2.parquet", data_page_size=1, write_batch_size=4)
    else:
        write(tmp_path / "some/0.arrow", empty)
        write(tmp_path / "some/2.arrow", table(10))
    convert(tmp_path / "some", tmp_path / "ours", "lanner", quiet=True)
    batch = Dataset.open(tmp_path / "ours").split("train").slice(0, 10)  # type: ignore[union-attr]
    assert batch.dense[:, 0].tolist() == table(10)["price"].to_pylist()
    (tmp_path / "some" / f"2.{ending}").unlink()
    with pytest.raises(DataError, match="some: no rows"):
        convert(tmp_path / "some", tmp_path / "none", "lanner", quiet=True)


def test_ids_are_never_rounded_nor_nulls_guessed(tmp_path: Path) -> None:
    schema = Schema.parse({"sparse": [{"name": "id", "raw": "int", "encoder": {"kind": "key"}}],
                           "tables": [{"name": "id", "rows": "dynamic"}]})  # fmt: skip
    write(tmp_path / "a.parquet", pa.table({"id": [BIG, BIG - 1, 5]}))
    convert(tmp_path / "a.parquet", tmp_path / "ours", "lanner", schema=schema, quiet=True)
    ids = Dataset.open(tmp_path / "ours").split("train").slice(0, 3).bags.values  # type: ignore[union-attr]
    assert ids.tolist() == [BIG, BIG - 1, 5]
    write(tmp_path / "b.parquet", pa.table({"id": [BIG, BIG - 1, None, 5]}))
    with pytest.raises(DataError, match=r"b.parquet: row 2, column 'id': null"):
        convert(tmp_path / "b.parquet", tmp_path / "null", "lanner", schema=schema, quiet=True)
    write(tmp_path / "c.parquet", pa.table({"id": pa.array([1, 2**63], pa.uint64())}))
    with pytest.raises(DataError, match=r"c.parquet: row 1, column 'id': id 9223372036854775808 is beyond 64 bits"):
        convert(tmp_path / "c.parquet", tmp_path / "beyond", "lanner", schema=schema, quiet=True)


def test_dictionary_codes_are_no_ids(tmp_path: Path) -> None:
    codes = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), pa.array([70, 30]))
    write(tmp_path / "a.arrow", pa.table({"id": codes}))
    convert(tmp_path / "a.arrow", tmp_path / "ours", "lanner", quiet=True)
    ids = Dataset.open(tmp_path / "ours").split("train").slice(0, 3).bags.values  # type: ignore[union-attr]
    assert ids.tolist() == [30, 70, 30]
    texts = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), pa.array(["a", "b"]))
    write(tmp_path / "b.parquet", pa.table({"id": texts}))
    with pytest.raises(ConfigError, match=r"column 'id' has type dictionary.*, neither numbers nor ids; give a schema"):
        open_source(tmp_path / "b.parquet")


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("user", pa.array([0, None]), r"row 1, column 'user': null"),
        ("price", pa.array([0.5, None], pa.float32()), r"row 1, column 'price': null"),
        ("price", pa.array([0.5, float("nan")]), r"row 1, column 'price': nan is not a finite number"),
        ("click", pa.array([0, 3]), r"row 1, column 'click': label 3, expected 0 or 1"),
        ("history", pa.array([[1], [2, None]]), r"row 1, column 'history': a null in the list"),
        ("history", pa.array([[1], [2, -3]]), r"row 1, column 'history': id -3 lies outside"),
        ("user", pa.array(["a", "b"]), r"column 'user' has type string, expected ids|numbers; raw values"),
        ("user", pa.array([1.0, 2.0]), r"column 'user' has type double, expected integers"),
    ],
)
def test_cells_that_cannot_be_are_named(tmp_path: Path, column: str, values: Any, message: str) -> None:
    write(tmp_path / "good.parquet", table(20))
    convert(tmp_path / "good.parquet", tmp_path / "ours", "lanner", quiet=True)
    bad = table(2)
    bad = bad.set_column(bad.schema.get_field_index(column), column, values)
    write(tmp_path / "bad.parquet", bad)
    with pytest.raises(DataError, match=message):
        convert(tmp_path / "bad.parquet", tmp_path / "none", "lanner", schema=tmp_path / "ours/schema.yaml", quiet=True)


def test_a_damaged_page_is_found_and_named(tmp_path: Path) -> None:
    write(tmp_path / "some/0.parquet", table(50))
    pq.write_table(table(5000), tmp_path / "some/1.parquet", write_page_checksum=True)
    data = bytearray((tmp_path / "some/1.parquet").read_bytes())
    data[200:1000] = bytes(800)
    (tmp_path / "some/1.parquet").write_bytes(data)
    with pytest.raises(DataError, match=r"some/1.parquet: damaged Parquet file"):
        convert(tmp_path / "some", tmp_path / "ours", "lanner", quiet=True)
    (tmp_path / "some/1.parquet").write_bytes(data[:100])
    with pytest.raises(DataError, match=r"some/1.parquet: damaged Parquet file"):
        open_source(tmp_path / "some")


def metadata(root: Path, change: Any = None) -> None:
    """HugeCTR's layout by hand: three parts, a column that is not listed, indices out of order."""
    root.mkdir(parents=True)
    stats = []
    for at, rows in enumerate((5, 7)):
        part = table(rows, at)
        columns = {"user": part["user"], "junk": pa.array(["x"] * rows), "history": part["history"]}
        columns |= {"vector": pa.array([[0.5, float(row)] for row in range(rows)], pa.list_(pa.float32()))}
        columns |= {"price": part["price"], "click": part["click"].cast(pa.float32())}
        pq.write_table(pa.table(columns), root / f"{at}.parquet")
        stats.append({"file_name": f"{at}.parquet", "num_rows": rows})
    found = {
        "file_stats": stats,
        "cats": [{"col_name": "history", "index": 2}, {"col_name": "user", "index": 0}],
        "conts": [{"col_name": "vector", "index": 3}, {"col_name": "price", "index": 4}],
        "labels": [{"col_name": "click", "index": 5}],
    }
    if change:
        change(found)
    (root / "_metadata.json").write_text(json.dumps(found))
    (root / "_file_list.txt").write_text("2\n/elsewhere/0.parquet\n/elsewhere/1.parquet\n")


def test_hugectr_parquet_made_elsewhere(tmp_path: Path) -> None:
    metadata(tmp_path / "theirs/train")
    sizes = {"sizes": "90,40"}
    done = convert(tmp_path / "theirs", tmp_path / "ours", "lanner", read=sizes, quiet=True)
    assert (done.read_as, done.rows) == ("hugectr-parquet", {"train": 12})
    dataset = Dataset.open(tmp_path / "ours")
    assert [(f.name, f.hotness) for f in dataset.schema.sparse] == [("user", 1), ("history", None)]
    assert [number.name for number in dataset.schema.dense] == ["vector_0", "vector_1", "price"]
    assert [t.rows for t in dataset.schema.tables] == [90, 40]
    batch = dataset.split("train").slice(0, 12)  # type: ignore[union-attr]
    assert batch.dense[:, 1].tolist() == [float(row) for rows in (5, 7) for row in range(rows)]
    assert batch.bags.values[:12].tolist() == table(5, 0)["user"].to_pylist() + table(7, 1)["user"].to_pylist()
    with pytest.raises(IdRangeError, match=r"0.parquet: row \d, column 'user': id \d+ lies outside table 'user'"):
        convert(tmp_path / "theirs", tmp_path / "small", "lanner", read={"sizes": "20,40"}, quiet=True)
    with pytest.raises(ConfigError, match="1 sizes for 2 cats"):
        open_source(tmp_path / "theirs", options={"sizes": "20"})


def test_what_we_write_is_what_hugectr_reads(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = bag_dataset(make_dataset, {"train": 70_000, "test": 9}, ragged=True)
    convert(dataset, tmp_path / "theirs", "hugectr-parquet", write={"rows": 40_000}, quiet=True)
    folder = tmp_path / "theirs/train"
    found = json.loads((folder / "_metadata.json").read_text())
    listed = (folder / "_file_list.txt").read_text().splitlines()
    assert listed == ["2", str(folder / "part-00000.parquet"), str(folder / "part-00001.parquet")]
    names = [entry["file_name"] for entry in found["file_stats"]]
    counts = [pq.read_metadata(folder / name).num_rows for name in names]
    assert counts == [entry["num_rows"] for entry in found["file_stats"]]
    assert sum(counts) == 70_000
    columns = pq.read_schema(folder / names[0])
    for role, kinds in {"labels": ["float"], "conts": ["float"] * 2}.items():
        assert [str(columns.field(entry["index"]).type) for entry in found[role]] == kinds
        assert [columns.names[entry["index"]] for entry in found[role]] == [e["col_name"] for e in found[role]]
    kinds = [columns.field(entry["index"]).type for entry in found["cats"]]
    assert kinds[0] == pa.int64()
    assert all(kind.value_type == pa.int64() for kind in kinds[1:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["file_stats"].pop(), "file_stats has no '1.parquet', which .*_file_list.txt names"),
        (lambda m: m["file_stats"][1].update(num_rows=8), "1.parquet: 7 rows, _metadata.json says 8"),
        (lambda m: m.pop("conts"), "KeyError 'conts'; expected file_stats"),
        (lambda m: m["labels"].append(m["cats"][0]), "column 'history' is listed twice"),
        (lambda m: m["cats"].append({"col_name": "gone", "index": 9}), "column 'gone' is missing"),
    ],
)
def test_metadata_that_do_not_fit(tmp_path: Path, change: Any, message: str) -> None:
    metadata(tmp_path / "theirs", change)
    with pytest.raises(DataError, match=message):
        open_source(tmp_path / "theirs")


def test_keysets(make_dataset: MakeDataset, tmp_path: Path) -> None:
    """The keys of a pass, shifted by slot like those of its Norm files."""
    dataset = one_hot_dataset(make_dataset, {"train": 40})
    ids = Dataset.open(dataset).split("train").slice(0, 40).bags.values.numpy().reshape(3, 40)  # type: ignore[union-attr]
    starts = (0, 10, 310)
    expected = sorted({int(value) + start for row, start in zip(ids, starts, strict=True) for value in row})
    for keys, kind in (("int64", "<i8"), ("uint32", "<u4")):
        convert(dataset, tmp_path / keys, "hugectr-keyset", write={"keys": keys}, quiet=True)
        assert (tmp_path / keys / "train/keyset").read_bytes() == np.array(expected, kind).tobytes()
        assert read_keys(str(tmp_path / keys / "train/keyset"), keys).tolist() == expected  # type: ignore[arg-type]
    convert(dataset, tmp_path / "each", "hugectr-keyset", write={"each": "true", "offsets": "false"}, quiet=True)
    for name, row in zip(("s0", "s1", "s2"), ids, strict=True):
        assert read_keys(str(tmp_path / f"each/train/{name}.keyset")).tolist() == sorted(set(row.tolist()))


def test_keysets_that_are_none(tmp_path: Path) -> None:
    file = str(tmp_path / "keys")
    Path(file).write_bytes(np.array([5, 7, 5], "<i8").tobytes())
    with pytest.raises(DataError, match="key 5 occurs 2 times"):
        read_keys(file)
    Path(file).write_bytes(b"1234567")
    with pytest.raises(DataError, match="7 bytes are no whole number of rows of 4 bytes"):
        read_keys(file, "uint32")
    with pytest.raises(DataError, match="key -1 does not fit uint32"):
        write_keys(file, np.array([3, -1]), "uint32")
    with pytest.raises(ConfigError, match="a keyset holds keys, no rows"):
        open_source(file, "hugectr-keyset")
