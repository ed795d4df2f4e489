"""The whole of prep on Criteo logs, against counts and lookups in plain Python."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from prep_logs import Row, make_rows, published_bytes, read_split, read_vocab, write

from lanner import manifest, storage
from lanner.errors import ConfigError, DataError, SchemaError
from lanner.prep import prepare
from lanner.schema import Dense, HashEncoder, Label, Schema, Sparse, VocabEncoder

ROWS = make_rows(3000)


def vocabulary(rows: list[Row], column: int, min_count: int) -> list[str]:
    """Values in id order: by falling count, ties by value."""
    counts = Counter(row[column] for row in rows if row[column])
    return sorted((v for v, c in counts.items() if c >= min_count), key=lambda v: (-counts[v], int(v, 16)))


def expected_ids(rows: list[Row], column: int, values: list[str]) -> list[int]:
    ids = {value: number for number, value in enumerate(values, start=1)}
    return [ids.get(row[column], 0) for row in rows]


def test_ids_numbers_and_labels_equal_a_plain_python_prep(tmp_path: Path) -> None:
    summary = prepare(write(tmp_path / "logs.tsv", ROWS), tmp_path / "out", min_count=3)
    splits = {"train": ROWS[:2400], "valid": ROWS[2400:2700], "test": ROWS[2700:]}
    assert summary.rows == {name: len(rows) for name, rows in splits.items()}
    for name, rows in splits.items():
        found = read_split(tmp_path / "out", name)
        assert found["label"].tolist() == [int(row[0]) for row in rows]
        assert found["dense"].dtype == np.float32
        numbers = [[math.log1p(max(int(cell or 0), 0)) for cell in row[1:14]] for row in rows]
        np.testing.assert_allclose(found["dense"], numbers, rtol=1e-6)
        for column in range(14, 40):
            values = vocabulary(splits["train"], column, 3)
            assert found[f"C{column - 13}"].tolist() == expected_ids(rows, column, values), column
            assert read_vocab(tmp_path / "out", f"C{column - 13}") == {v: i for i, v in enumerate(values, start=1)}
    schema = Schema.load(tmp_path / "out" / "schema.yaml")
    assert [table.rows for table in schema.tables] == [1 + len(vocabulary(ROWS[:2400], c, 3)) for c in range(14, 40)]
    assert manifest.read(tmp_path / "out", "dataset").fingerprint == schema.fingerprint()
    manifest.verify(tmp_path / "out", manifest.read(tmp_path / "out", "dataset"), checksums=True)


def test_summary_counts_missing_and_unknown_values(tmp_path: Path) -> None:
    summary = prepare(write(tmp_path / "logs.tsv", ROWS), tmp_path / "out", min_count=5, split="sequential", test=500)
    train, test = ROWS[:2500], ROWS[2500:]
    features = {feature.name: feature for feature in summary.features}
    for split, rows in (("train", train), ("test", test)):
        assert features["I3"].missing[split] == sum(row[3] == "" for row in rows)
        known = set(vocabulary(train, 20, 5))
        assert features["C7"].missing[split] == sum(row[20] == "" for row in rows)
        assert features["C7"].unknown[split] == sum(row[20] not in known and row[20] != "" for row in rows)
    assert features["C7"].table_rows == 1 + len(known)
    info = json.loads((tmp_path / "out" / "manifest.json").read_text())["info"]
    assert info["features"][19]["unknown"] == features["C7"].unknown
    assert info["split"] == {"split": "sequential", "valid": None, "test": 500, "seed": None}


@pytest.mark.parametrize(("threads", "block"), [("1", 20_000), ("3", 20_000), ("3", 300_000), ("1", 1 << 20)])
def test_output_does_not_depend_on_threads_or_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: str, block: int
) -> None:
    # a number that does not fit float32 makes its chunk be staged otherwise
    logs = write(tmp_path / "logs.tsv", [[*row[:1], "16777217", *row[2:]] if row is ROWS[7] else row for row in ROWS])
    options = {"min_count": 2, "split": "random", "valid": 0.2, "test": 0.2, "transform": "log1p_standard"}
    prepare(logs, tmp_path / "plain", **options)  # type: ignore[arg-type]
    monkeypatch.setenv("LANNER_THREADS", threads)
    prepare(logs, tmp_path / "again", block_bytes=block, **options)  # type: ignore[arg-type]
    assert published_bytes(tmp_path / "again") == published_bytes(tmp_path / "plain")


def test_many_files_give_the_bytes_of_one(tmp_path: Path) -> None:
    for number, (begin, end) in enumerate([(0, 1), (1, 1700), (1700, 1700), (1700, 3000)]):
        write(tmp_path / f"day_{number}", ROWS[begin:end])
    prepare(write(tmp_path / "logs.tsv", ROWS), tmp_path / "one")
    prepare(tmp_path / "day_*", tmp_path / "many")
    assert published_bytes(tmp_path / "one") == published_bytes(tmp_path / "many")


def test_fit_all_counts_every_row(tmp_path: Path) -> None:
    prepare(write(tmp_path / "logs.tsv", ROWS), tmp_path / "out", min_count=2, fit="all")
    assert read_split(tmp_path / "out", "test")["C1"].tolist() == expected_ids(ROWS[2700:], 14, vocabulary(ROWS, 14, 2))


def test_split_by_file_fits_on_the_training_files(tmp_path: Path) -> None:
    write(tmp_path / "day_0", ROWS[:1000])
    write(tmp_path / "day_1", ROWS[1000:1200])
    summary = prepare(tmp_path / "day_0", tmp_path / "out", split="file", test=str(tmp_path / "day_1"), min_count=2)
    assert summary.rows == {"train": 1000, "test": 200}
    values = vocabulary(ROWS[:1000], 14, 2)
    assert read_split(tmp_path / "out", "test")["C1"].tolist() == expected_ids(ROWS[1000:1200], 14, values)


def test_using_an_older_dataset_encodes_alike_without_fitting(tmp_path: Path) -> None:
    prepare(write(tmp_path / "logs.tsv", ROWS), tmp_path / "out", min_count=2)
    write(tmp_path / "new.tsv", ROWS[2700:])
    summary = prepare(tmp_path / "new.tsv", tmp_path / "new", using=tmp_path / "out")
    assert summary.rows == {"test": 300}
    assert published_bytes(tmp_path / "new") == {
        name: content for name, content in published_bytes(tmp_path / "out").items() if "train" not in name
        and "valid" not in name
    }  # fmt: skip
    with pytest.raises(ConfigError, match="give neither"):
        prepare(tmp_path / "new.tsv", tmp_path / "x", using=tmp_path / "out", min_count=3)


def test_unlabelled_logs_keep_every_row_and_get_no_label(tmp_path: Path, shared_data: Path) -> None:
    logs = shared_data / "criteo_kaggle_unlabelled_200.tsv"
    prepare(logs, tmp_path / "out", labelled=False, split="none", transform="none")
    found = read_split(tmp_path / "out", "train")
    assert "label" not in found
    first = [line.split("\t")[0] for line in logs.read_text().splitlines()]
    np.testing.assert_array_equal(found["dense"][:, 0], [float(cell or 0) for cell in first])


def test_numbers_beyond_32_bits_and_below_zero_stay_finite(tmp_path: Path) -> None:
    values = ["-3", "-2", "-1", "0", "1", "2147483647", "3000000000", ""]
    logs = write(tmp_path / "logs.tsv", [["1", value, "a"] for value in values])
    found = {}
    for transform in ("log1p_clip0", "log_shift3_missing0", "log_minus_min_plus2", "standard"):
        out = tmp_path / transform
        prepare(logs, out, numeric=1, categorical=1, split="none", transform=transform)  # type: ignore[arg-type]
        found[transform] = read_split(out, "train")["dense"][:, 0]
        assert np.isfinite(found[transform]).all()
    np.testing.assert_allclose(found["log1p_clip0"][5:7], [21.4876, 21.8219], atol=1e-4)
    assert found["log1p_clip0"][:4].tolist() == [0, 0, 0, 0]
    np.testing.assert_allclose(found["log_shift3_missing0"][[0, 1, 7]], [0, 0, 0])


def test_every_distinct_id_of_the_training_rows_is_in_the_vocabulary(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs.tsv", [["0", "1", f"{row * 7919:x}"] for row in range(1003)])
    prepare(logs, tmp_path / "out", numeric=1, categorical=1, split="none", min_count=1)
    assert set(read_vocab(tmp_path / "out", "C1")) == {f"{row * 7919:08x}" for row in range(1003)}
    assert sorted(read_split(tmp_path / "out", "train")["C1"]) == list(range(1, 1004))


def test_hashing_needs_no_vocabulary(tmp_path: Path) -> None:
    prepare(write(tmp_path / "logs.tsv", ROWS), tmp_path / "out", hash_size=50)
    assert not (tmp_path / "out" / "vocab").exists()
    ids = read_split(tmp_path / "out", "train")["C1"]
    assert ids[[row[14] == "" for row in ROWS[:2400]]].max(initial=0) == 0
    assert ids[[row[14] != "" for row in ROWS[:2400]]].min() >= 1
    assert ids.max() <= 50


def test_max_size_and_unknown_buckets(tmp_path: Path) -> None:
    prepare(write(tmp_path / "logs.tsv", ROWS), tmp_path / "out", min_count=2, max_size=4, unknown_buckets=3)
    kept = vocabulary(ROWS[:2400], 14, 2)[:4]
    assert read_vocab(tmp_path / "out", "C1") == {value: 4 + k for k, value in enumerate(kept)}
    ids = read_split(tmp_path / "out", "train")["C1"]
    for row, found in zip(ROWS, ids, strict=False):
        assert (found == 0) == (row[14] == "")
        assert (1 <= found <= 3) == (row[14] not in ("", *kept))


def test_a_schema_may_rename_drop_and_share(tmp_path: Path) -> None:
    schema = Schema(
        labels=(Label(name="click", column="label"),),
        dense=(Dense(name="age", column="I13"), Dense(name="clicks", column="I2")),
        sparse=(
            Sparse(name="ad", column="C3", raw="hex", table="shared", encoder=VocabEncoder(min_count=2)),
            Sparse(name="page", column="C1", raw="hex", table="shared", encoder=VocabEncoder(min_count=2)),
            Sparse(name="site", column="C2", raw="hex", encoder=HashEncoder(size=9)),
        ),
    )
    prepare(write(tmp_path / "logs.tsv", ROWS), tmp_path / "out", schema=schema, split="none")
    found = read_split(tmp_path / "out", "train")
    assert list(found) == ["click", "dense", "ad", "page", "site"]
    np.testing.assert_array_equal(found["dense"], [[int(row[13] or 0), int(row[2] or 0)] for row in ROWS])
    both = vocabulary([[row[16]] for row in ROWS] + [[row[14]] for row in ROWS], 0, 2)
    assert found["ad"].tolist() == expected_ids(ROWS, 16, both)
    assert found["page"].tolist() == expected_ids(ROWS, 14, both)


@pytest.mark.parametrize("column", ["C27", "C0", "X1", "I1"])
def test_a_schema_cannot_read_columns_that_are_not_there(tmp_path: Path, column: str) -> None:
    schema = Schema(sparse=(Sparse(name="ad", column=column, raw="hex"),))
    with pytest.raises(SchemaError, match=column):
        prepare(write(tmp_path / "logs.tsv", ROWS[:5]), tmp_path / "out", schema=schema)


def test_half_precision_numbers(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs.tsv", [["1", "3", "a"], ["0", "70000", "b"]])
    prepare(logs, tmp_path / "out", numeric=1, categorical=1, split="none", dense_type="float16")
    assert read_split(tmp_path / "out", "train")["dense"].dtype == np.float16
    with pytest.raises(DataError, match=r"I1.*70000.*float16"):
        prepare(
            logs, tmp_path / "raw", numeric=1, categorical=1, split="none", dense_type="float16", transform="none"
        )  # fmt: skip
    assert not (tmp_path / "raw" / "manifest.json").exists()


def test_rows_limits_the_input_across_files(tmp_path: Path) -> None:
    write(tmp_path / "day_0", ROWS[:100])
    write(tmp_path / "day_1", ROWS[100:200])
    write(tmp_path / "day_2", ROWS[200:300])
    summary = prepare(tmp_path / "day_*", tmp_path / "out", rows=150, split="none")
    assert summary.rows == {"train": 150}
    assert read_split(tmp_path / "out", "train")["label"].tolist() == [int(row[0]) for row in ROWS[:150]]
    assert [file.rows for file in summary.files] == [100, 50]


def test_tiny_inputs(tmp_path: Path) -> None:
    for number, row in enumerate(ROWS[:2]):
        write(tmp_path / f"day_{number}", [row])
    assert prepare(tmp_path / "day_*", tmp_path / "two").rows == {"train": 1, "test": 1}
    assert prepare(write(tmp_path / "logs", ROWS[:37]), tmp_path / "out").rows == {"train": 31, "valid": 3, "test": 3}


def test_nothing_to_read_and_empty_parts_are_said_so(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(DataError, match=r"no usable rows in .*empty"):
        prepare(tmp_path / "empty", tmp_path / "out")
    logs = write(tmp_path / "logs", ROWS[:3])
    with pytest.raises(DataError, match="the valid split is empty: none of 3 rows"):
        prepare(logs, tmp_path / "out", split="random", valid=0.0001)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        prepare(tmp_path / "nowhere*", tmp_path / "out")
    with pytest.raises(ConfigError, match="more than once"):
        prepare([logs, logs], tmp_path / "out")
    with pytest.raises(ConfigError, match="is a directory"):
        prepare(tmp_path, tmp_path / "out")


def test_any_file_system_can_be_written_to_and_read_from(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs.tsv", ROWS)
    prepare(logs, tmp_path / "local")
    with storage.publish("memory://prep/logs.tsv") as sink:
        sink.write(logs.read_bytes())
    summary = prepare("memory://prep/logs*", "memory://prep/out", scratch=str(tmp_path / "scratch"))
    assert summary.total_rows == 3000
    expected = [*published_bytes(tmp_path / "local"), "manifest.json", "prep-report.html"]
    assert storage.list_files("memory://prep/out") == sorted(expected)
    for name, content in published_bytes(tmp_path / "local").items():
        with storage.open_file(storage.join("memory://prep/out", name)) as file:
            assert file.read() == content
    manifest.verify("memory://prep/out", manifest.read("memory://prep/out", "dataset"), checksums=True)


def test_a_finished_dataset_is_replaced_only_on_request(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs.tsv", ROWS)
    prepare(logs, tmp_path / "out")
    before = published_bytes(tmp_path / "out")
    with pytest.raises(ConfigError, match="already holds a finished dataset"):
        prepare(logs, tmp_path / "out", split="none")
    assert published_bytes(tmp_path / "out") == before
    prepare(logs, tmp_path / "out", split="none", hash_size=10, overwrite=True)
    assert sorted(published_bytes(tmp_path / "out")) == ["schema.yaml", "train/part-00000.arrow"]


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs.tsv", ROWS[:5])
    for wrong in (
        {"memory": "2 parsecs"}, {"memory": "1MB"}, {"fit": "test"}, {"rows": 0}, {"min_count": 0}, {"colour": 1},
        {"hash_size": 5, "min_count": 2}, {"source": "xml"}, {"source": "csv"}, {"time": "hour"}, {"numeric": -1},
        {"dense_type": "int8"}, {"transform": "square"}, {"transform": "bucketize"}, {"delimiter": "\n"},
    ):  # fmt: skip
        with pytest.raises((ConfigError, SchemaError), match=r"\w"):
            prepare(logs, tmp_path / "out", **wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()
