"""HugeCTR's Norm format against files packed here with `struct` from the description of the format."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import MakeDataset
from format_rows import assert_same, bag_dataset, one_hot_dataset

from lanner import Dataset
from lanner.data.formats import convert, open_source
from lanner.errors import ConfigError, DataError, IdRangeError

Row = tuple[float, list[float], list[list[int]]]


def rows_of(count: int, seed: int = 0, most: int = 3) -> list[Row]:
    """A label, two numbers, and three slots of 0 to `most` keys below 100."""
    random = np.random.default_rng(seed)
    return [
        (
            float(random.integers(2)),
            random.normal(size=2).astype(np.float32).tolist(),
            [random.integers(0, 100, random.integers(0, most + 1)).tolist() for _ in range(3)],
        )
        for _ in range(count)
    ]


def record(row: Row, kind: str, checked: bool) -> bytes:
    label, dense, slots = row
    body = struct.pack("<3f", label, *dense)
    for keys in slots:
        body += struct.pack(f"<i{len(keys)}{kind}", len(keys), *keys)
    return struct.pack("<i", len(body)) + body + bytes([sum(body) & 255]) if checked else body


def header(rows: int, checked: bool) -> bytes:
    body = struct.pack("<8q", int(checked), rows, 1, 2, 3, 0, 0, 0)
    return struct.pack("<i", 64) + body + bytes([sum(body) & 255]) if checked else body


def golden(folder: Path, files: list[list[Row]], kind: str = "q", checked: bool = True) -> list[Path]:
    """Writes files and their list, whose paths are those of another machine."""
    folder.mkdir(parents=True)
    paths = [folder / f"gen_{at}.data" for at in range(len(files))]
    for path, rows in zip(paths, files, strict=True):
        path.write_bytes(header(len(rows), checked) + b"".join(record(row, kind, checked) for row in rows))
    names = "\n".join(f"/elsewhere/{path.name}" for path in paths)
    (folder / "_file_list.txt").write_text(f"{len(paths)}\n{names}\n")
    return paths


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("kind", ["I", "q"])
def test_files_made_elsewhere(tmp_path: Path, kind: str, checked: bool) -> None:
    rows = rows_of(60)
    paths = golden(tmp_path / "theirs/train", [rows[:25], rows[25:50], rows[50:]], kind, checked)
    assert paths[0].read_bytes()[:4] == struct.pack("<i", 64 if checked else 0)
    done = convert(tmp_path / "theirs", tmp_path / "ours", "lanner", quiet=True)
    assert (done.read_as, done.rows, done.skipped) == ("hugectr-norm", {"train": 60}, 0)
    batch = Dataset.open(tmp_path / "ours").split("train").slice(0, 60)  # type: ignore[union-attr]
    assert batch.labels[:, 0].tolist() == [row[0] for row in rows]
    assert np.array_equal(batch.dense.numpy(), np.array([row[1] for row in rows], np.float32))
    assert batch.bags.values.tolist() == [key for slot in range(3) for row in rows for key in row[2][slot]]
    options = {"keys": "uint32" if kind == "I" else "int64", "checksum": checked, "records": 25, "offsets": False}
    convert(tmp_path / "ours", tmp_path / "back", "hugectr-norm", write=options, quiet=True)
    for at, path in enumerate(paths):
        assert (tmp_path / f"back/train/part-0000{at}.data").read_bytes() == path.read_bytes()
    listed = (tmp_path / "back/train/_file_list.txt").read_text().split()
    assert listed == ["3", *(str(tmp_path / f"back/train/part-0000{at}.data") for at in range(3))]


def test_slots_do_not_overlap_by_default(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = one_hot_dataset(make_dataset, {"train": 70, "valid": 10, "test": 20})
    convert(dataset, tmp_path / "norm", "hugectr-norm", write={"records": 30}, quiet=True)
    source = open_source(tmp_path / "norm/train/part-00000.data", schema=dataset / "schema.yaml",
                         format="hugectr-norm")  # fmt: skip
    keys = [ids.values for block in source.blocks("train") for ids in block.ids]
    for values, (low, high) in zip(keys, ((0, 10), (10, 310), (310, 70_310)), strict=True):
        assert low <= values.min() <= values.max() < high
    convert(tmp_path / "norm", tmp_path / "back", "lanner", quiet=True)
    assert_same(dataset, tmp_path / "back")


@pytest.mark.parametrize("ragged", [False, True])
def test_bags_of_any_length(make_dataset: MakeDataset, tmp_path: Path, ragged: bool) -> None:
    dataset = bag_dataset(make_dataset, {"train": 500}, ragged)
    convert(dataset, tmp_path / "norm", "hugectr-norm", write={"keys": "uint32", "checksum": False}, quiet=True)
    convert(tmp_path / "norm", "memory://formats/norm", "hugectr-norm", overwrite=True, quiet=True)
    convert("memory://formats/norm", tmp_path / "back", "lanner", quiet=True)
    assert_same(dataset, tmp_path / "back")


def test_real_rows(criteo: Path, tmp_path: Path) -> None:
    convert(criteo, tmp_path / "norm", "hugectr-norm", quiet=True)
    rows = len(Dataset.open(criteo).split("train"))  # type: ignore[arg-type]
    size = (tmp_path / "norm/train/part-00000.data").stat().st_size
    assert size == 69 + rows * (4 + 4 * 14 + 26 * (4 + 8) + 1)
    convert(tmp_path / "norm", tmp_path / "back", "lanner", write={"dense_type": "float16"}, quiet=True)
    assert_same(criteo, tmp_path / "back")


def test_hotness_that_is_the_same_in_every_row_is_found(tmp_path: Path) -> None:
    rows: list[Row] = [(1.0, [0.0, 0.0], [[row], [1, 2], [row] * (row % 3)]) for row in range(50)]
    golden(tmp_path / "theirs", [rows])
    convert(tmp_path / "theirs", tmp_path / "ours", "lanner", quiet=True)
    schema = Dataset.open(tmp_path / "ours").schema
    assert [feature.hotness for feature in schema.sparse] == [1, 2, None]
    assert [table.rows for table in schema.tables] == [50, 3, 50]


@pytest.mark.parametrize("place", [4, 20, -1, 0, 3], ids=["label", "number", "sum", "length", "long"])
def test_a_damaged_record_is_skipped_and_named(tmp_path: Path, place: int) -> None:
    rows = rows_of(30)
    records = [bytearray(record(row, "q", True)) for row in rows]
    records[7][place] ^= 0x40 if place else 1
    records[29][place] ^= 0x40 if place else 1
    golden(tmp_path / "theirs", [rows])
    file = tmp_path / "theirs/gen_0.data"
    file.write_bytes(header(30, True) + b"".join(records))
    done = convert(tmp_path / "theirs", tmp_path / "ours", "lanner", quiet=True)
    assert done.skipped == 2
    assert done.rows == {"train": 28}
    assert [text.partition(" is damaged")[0] for text in done.damaged] == [f"{file}: record {n}" for n in (7, 29)]
    kept = [row for at, row in enumerate(rows) if at not in (7, 29)]
    batch = Dataset.open(tmp_path / "ours").split("train").slice(0, 28)  # type: ignore[union-attr]
    assert np.array_equal(batch.dense.numpy(), np.array([row[1] for row in kept], np.float32))


def test_rows_keep_their_numbers_behind_a_damaged_record(tmp_path: Path) -> None:
    rows = rows_of(10)
    rows[8] = (7.0, *rows[8][1:])
    golden(tmp_path / "theirs", [rows])
    file = tmp_path / "theirs/gen_0.data"
    records = [bytearray(record(row, "q", True)) for row in rows]
    records[3][6] ^= 1
    file.write_bytes(header(10, True) + b"".join(records))
    with pytest.raises(DataError, match=r"gen_0.data: row 8, column 'label': label 7.0"):
        convert(tmp_path / "theirs", tmp_path / "ours", "lanner", quiet=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-3], "gen_0.data: record 9 of 10: the file ends within it"),
        (lambda data: data + b"x", "gen_0.data: more bytes follow the 10 records"),
        (lambda data: data[:30], "gen_0.data: 30 bytes, no room for a Norm header"),
        (lambda data: data[:12] + b"\x0b" + data[13:], "gen_0.data: the header is damaged"),
        (lambda data: data[4:], "gen_0.data: no Norm header"),
    ],
)
def test_files_that_do_not_add_up(tmp_path: Path, change: Any, message: str) -> None:
    golden(tmp_path / "theirs", [rows_of(10)])
    file = tmp_path / "theirs/gen_0.data"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(DataError, match=message):
        convert(tmp_path / "theirs", tmp_path / "ours", "lanner", read={"keys": "int64"}, quiet=True)


def test_without_checksums_a_count_that_is_none_ends_it(tmp_path: Path) -> None:
    rows = rows_of(5)
    golden(tmp_path / "theirs", [rows], checked=False)
    records = [bytearray(record(row, "q", False)) for row in rows]
    records[2][12:16] = struct.pack("<i", -1)
    (tmp_path / "theirs/gen_0.data").write_bytes(header(5, False) + b"".join(records))
    with pytest.raises(DataError, match="record 2 of 5: its length is damaged"):
        convert(tmp_path / "theirs", tmp_path / "ours", "lanner", read={"keys": "int64"}, quiet=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2\ngen_0.data\n", "says 2 files, names 1"),
        ("gen_0.data\n", "the first line is 'gen_0.data', expected the number of files"),
        ("1\ngen_1.data\n", "names 'gen_1.data', which is neither there nor beside the list"),
        ("", "the first line is '', expected the number of files"),
    ],
)
def test_lists_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    golden(tmp_path / "theirs", [rows_of(3)])
    (tmp_path / "theirs/_file_list.txt").write_text(text)
    with pytest.raises(DataError, match=f"_file_list.txt: {message}"):
        open_source(tmp_path / "theirs")


def test_keys_beyond_their_table_or_type(make_dataset: MakeDataset, tmp_path: Path) -> None:
    golden(tmp_path / "theirs", [[(1.0, [0.0, 0.0], [[99], [0], [-5]])]])
    with pytest.raises(IdRangeError, match=r"row 0, column 'C3': id -5 lies outside"):
        convert(tmp_path / "theirs", tmp_path / "ours", "lanner", read={"keys": "int64"}, quiet=True)
    dataset = one_hot_dataset(make_dataset, {"train": 5})
    with pytest.raises(DataError, match="1 labels, 2 numbers, 3 slots; the schema has 1, 3 and 3"):
        open_source(tmp_path / "theirs", schema=dataset / "schema.yaml")
    ambiguous: list[Row] = [(1.0, [0.0, 0.0], [[], [], []])]
    golden(tmp_path / "empty", [ambiguous])
    with pytest.raises(ConfigError, match="keys may be of 4 or 8 bytes; give the option keys"):
        open_source(tmp_path / "empty")
