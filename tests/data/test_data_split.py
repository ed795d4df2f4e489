"""Reading rows: equal to NumPy indexing for any layout, and broken cells are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from dataset_files import MakeDataset, make_rows, make_schema, write_file
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanner.data import Dataset, Split
from lanner.data.part import open_part
from lanner.errors import DataError, IdRangeError
from lanner.schema import Schema


def open_rows(folder: Path, schema: Schema, parts: list[dict[str, Any]], batch_rows: int = 1000) -> Split:
    opened = []
    for index, columns in enumerate(parts):
        path = folder / f"part-{index:05d}.arrow"
        write_file(path, columns, batch_rows)
        opened.append(open_part(str(path), str(path), schema))
    return Split("rows", schema, opened)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    batch_rows=st.integers(1, 17),
    picks=st.lists(st.floats(0, 1, exclude_max=True), max_size=50),
)
def test_take_equals_numpy_indexing(tmp_path: Path, sizes: list[int], batch_rows: int, picks: list[float]) -> None:
    schema = make_schema(rows=(10, 300, 70_000, 2**31))
    parts = [make_rows(schema, size, seed) for seed, size in enumerate(sizes)]
    split = open_rows(tmp_path, schema, parts, batch_rows)
    total = sum(sizes)
    rows = np.array([int(pick * total) for pick in picks if total], np.int64)
    batch = split.take(rows)
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    np.testing.assert_array_equal(batch.dense, whole["dense"][rows])
    np.testing.assert_array_equal(batch.labels[:, 0], whole["label"][rows])
    for index in range(4):
        ids = batch.bags.values[index * len(rows) : (index + 1) * len(rows)]
        np.testing.assert_array_equal(ids, whole[f"s{index}"][rows])
    assert batch.bags.values.dtype == split.slice(0, 0).bags.values.dtype
    batch.bags.validate()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    bags=st.lists(st.lists(st.integers(0, 299), max_size=5), min_size=1, max_size=30),
    large=st.booleans(),
    batch_rows=st.integers(1, 9),
)
def test_bags_equal_python_lists(tmp_path: Path, bags: list[list[int]], large: bool, batch_rows: int) -> None:
    schema = Schema.parse(
        {
            "labels": [{"name": "label"}],
            "sparse": [
                {"name": "one", "raw": "int"},
                {"name": "many", "raw": "int", "hotness": None},
                {"name": "two", "raw": "int", "hotness": 2},
            ],
            "tables": [{"name": "one", "rows": 300}, {"name": "many", "rows": 300}, {"name": "two", "rows": 300}],
        }
    )
    make_list = pa.large_list if large else pa.list_
    one = np.array([len(bag) for bag in bags], np.uint16)
    two = [[len(bag), 7] for bag in bags]
    columns = {
        "label": np.ones(len(bags), np.float32),
        "one": one,
        "many": pa.array(bags, make_list(pa.uint16())),
        "two": pa.array(two, make_list(pa.uint16())),
    }
    split = open_rows(tmp_path, schema, [columns], batch_rows)
    rows = np.arange(len(bags))[::-1].copy()
    found = split.take(rows).bags
    expected = [[int(one[row])] for row in rows] + [bags[row] for row in rows] + [two[row] for row in rows]
    assert found.offsets is not None
    found.validate()
    assert found.values.tolist() == [value for bag in expected for value in bag]
    assert found.offsets.tolist() == np.cumsum([0, *map(len, expected)]).tolist()


@pytest.fixture
def ragged() -> Schema:
    return Schema.parse(
        {
            "labels": [{"name": "label"}],
            "sparse": [{"name": "many", "raw": "int", "hotness": None}, {"name": "pair", "raw": "int", "hotness": 2}],
            "tables": [{"name": "many", "rows": 10}, {"name": "pair", "rows": 10}],
        }
    )


def test_a_fixed_number_of_ids_is_checked(tmp_path: Path, ragged: Schema) -> None:
    columns = {
        "label": np.ones(3),
        "many": pa.array([[1], [], [2, 3]], pa.list_(pa.uint8())),
        "pair": pa.array([[1, 2], [3, 4], [5]], pa.list_(pa.uint8())),
    }
    split = open_rows(tmp_path, ragged, [columns])
    assert len(split.slice(0, 2)) == 2
    with pytest.raises(DataError, match=r"part-00000.arrow: row 2, column 'pair': 1 ids; the schema says hotness 2"):
        split.slice(0, 3)


def test_list_offsets_are_checked(tmp_path: Path, ragged: Schema) -> None:
    ids = pa.array(np.arange(8, dtype=np.uint8))
    broken = pa.ListArray.from_arrays(pa.array([0, 2, 1, 8], pa.int32()), ids)
    pairs = pa.array([[1, 2]] * 3, pa.list_(pa.uint8()))
    split = open_rows(tmp_path, ragged, [{"label": np.ones(3), "many": broken, "pair": pairs}])
    with pytest.raises(DataError, match=r"row 1, column 'many': the list's offsets do not fit its ids"):
        split.slice(0, 3)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=3))
def test_damage_is_an_error_or_harmless_but_never_a_crash(
    tmp_path: Path, ragged: Schema, flips: list[tuple[float, int]]
) -> None:
    columns = {
        "label": np.ones(9, np.uint8),
        "many": pa.array([list(range(n)) for n in range(9)], pa.list_(pa.uint8())),
        "pair": pa.array([[1, 2]] * 9, pa.list_(pa.uint8())),
    }
    whole, damaged = tmp_path / "whole.arrow", tmp_path / "damaged.arrow"
    write_file(whole, columns, 4)
    data = bytearray(whole.read_bytes())
    for place, change in flips:
        data[int(place * len(data))] ^= change
    damaged.unlink(missing_ok=True)  # a file that is mapped must not change
    damaged.write_bytes(data)
    try:
        split = Split("rows", ragged, [open_part(str(damaged), "damaged.arrow", ragged)])
        split.slice(0, min(split.rows, 100))
    except DataError as error:
        assert str(error).startswith("damaged.arrow")


def test_an_id_outside_its_table_names_file_row_and_column(tmp_path: Path) -> None:
    schema = make_schema(rows=(10, 300, 70_000))
    good, bad = make_rows(schema, 20), make_rows(schema, 20)
    bad["s1"][13] = 300
    split = open_rows(tmp_path, schema, [good, bad], batch_rows=8)
    assert len(split.slice(0, 33)) == 33
    message = r"part-00001.arrow: row 13, column 's1': id 300 lies outside table 's1' \(0..299\)"
    for rows in (range(40), [33, 2, 33]):
        with pytest.raises(IdRangeError, match=message):
            split.take(np.array(rows))


def test_negative_and_huge_ids_are_refused(tmp_path: Path) -> None:
    schema = make_schema(rows=(10,))
    for value in (-1, 2**32, 2**62):
        columns = {**make_rows(schema, 3), "s0": np.array([0, value, 9], np.int64)}
        with pytest.raises(IdRangeError, match=f"row 1, column 's0': id {value} lies outside"):
            open_rows(tmp_path, schema, [columns]).slice(0, 3)


def test_an_id_outside_its_table_is_found_in_bags(tmp_path: Path, ragged: Schema) -> None:
    columns = {
        "label": np.ones(2),
        "many": pa.array([[1], [2, 10]], pa.list_(pa.uint8())),
        "pair": pa.array([[1, 2]] * 2, pa.list_(pa.uint8())),
    }
    with pytest.raises(IdRangeError, match=r"row 1, column 'many': id 10 lies outside table 'many' \(0..9\)"):
        open_rows(tmp_path, ragged, [columns]).slice(0, 2)


def test_ids_are_int32_only_where_every_table_fits(tmp_path: Path) -> None:
    for rows, expected in ((2**31, "torch.int32"), (2**31 + 1, "torch.int64")):
        schema = make_schema(rows=(10, rows))
        columns = make_rows(schema, 4)
        columns["s1"][2] = rows - 1
        batch = open_rows(tmp_path, schema, [columns]).slice(0, 4)
        assert str(batch.bags.values.dtype) == expected
        assert int(batch.bags.values[4 + 2]) == rows - 1


def test_a_growing_table_takes_any_key(tmp_path: Path) -> None:
    schema = make_schema(rows=())
    schema = Schema.parse(
        {
            "labels": [{"name": "label"}],
            "sparse": [{"name": "user", "raw": "int"}],
            "tables": [{"name": "user", "rows": "dynamic"}],
        }
    )
    keys = np.array([-(2**63), -1, 0, 2**63 - 1])
    batch = open_rows(tmp_path, schema, [{"label": np.ones(4), "user": keys}]).slice(0, 4)
    np.testing.assert_array_equal(batch.bags.values, keys)


def test_half_precision_weight_and_group(tmp_path: Path) -> None:
    schema = make_schema(rows=(10,), weight="w", group="user")
    columns = make_rows(schema, 6)
    columns["dense"] = np.array(columns["dense"], np.float16)
    columns |= {"w": np.linspace(0, 1, 6, dtype=np.float32), "user": np.arange(6) + 2**40}
    batch = open_rows(tmp_path, schema, [columns]).take([5, 0])
    assert batch.weight is not None and batch.group is not None
    np.testing.assert_array_equal(batch.weight, columns["w"][[5, 0]])
    np.testing.assert_array_equal(batch.group, columns["user"][[5, 0]])
    np.testing.assert_array_equal(batch.dense, columns["dense"][[5, 0]].astype(np.float32))


def test_a_dataset_without_numbers_or_without_categories(tmp_path: Path) -> None:
    for schema in (make_schema(rows=(), dense=3), make_schema(rows=(10,), dense=0)):
        batch = open_rows(tmp_path, schema, [make_rows(schema, 5)]).slice(1, 4)
        assert batch.dense.shape == (3, len(schema.dense)) and len(batch) == 3
        assert batch.bags.values.numel() == 3 * len(schema.sparse)


def test_a_column_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    schema = make_schema(rows=(10,), dense=0)
    twice = pa.table([pa.array([1.0]), pa.array([1]), pa.array([2])], names=["label", "s0", "s0"])
    with pa.ipc.new_file(str(tmp_path / "twice.arrow"), twice.schema) as writer:
        writer.write_table(twice)
    with pytest.raises(DataError, match=r"twice.arrow: a column name occurs twice among label, s0, s0"):
        open_part(str(tmp_path / "twice.arrow"), "twice.arrow", schema)


def test_several_labels_stand_in_schema_order(tmp_path: Path) -> None:
    schema = Schema.parse(
        {"labels": [{"name": "buy"}, {"name": "stars", "task": "regression"}], "dense": [{"name": "d"}]}
    )
    columns = {"stars": np.array([1.5, 2]), "buy": np.array([1, 0], np.uint8), "dense": np.ones((2, 1), np.float32)}
    assert open_rows(tmp_path, schema, [columns]).slice(0, 2).labels.tolist() == [[1, 1.5], [0, 2]]


def test_rows_that_are_not_there_are_refused(make_dataset: MakeDataset) -> None:
    schema = make_schema()
    split = Dataset.open(make_dataset(schema, {"train/part-0.arrow": make_rows(schema, 5)})).train
    assert split is not None
    for rows in ([5], [-1], [0, 99]):
        with pytest.raises(IndexError, match=rf"row {rows[-1]} of .*train, which has 5"):
            split.take(rows)
    for start, stop in ((0, 6), (-1, 2), (3, 2)):
        with pytest.raises(IndexError):
            split.slice(start, stop)
