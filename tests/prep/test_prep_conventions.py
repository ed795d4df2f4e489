"""The recipes of others, against ids and numbers computed in plain Python from what they are known to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prep_logs import make_rows, published_bytes, read_split, write

from lanner.errors import ConfigError, DataError, SchemaError
from lanner.prep import prepare
from lanner.prep.encoder import Encoder
from lanner.schema import Schema

GOLDEN = json.loads(Path(__file__).with_name("convention_golden.json").read_text())
SMALL: dict[str, Any] = {"numeric": 3, "categorical": 2}


def days(folder: Path) -> list[Path]:
    files = [folder / f"day_{at}" for at in range(len(GOLDEN["days"]))]
    for file, lines in zip(files, GOLDEN["days"], strict=True):
        file.write_text("".join(f"{line}\n" for line in lines))
    return files


def rows_of(out: Path, split: str) -> list[tuple[int, tuple[int, ...], tuple[float, ...]]]:
    found = read_split(out, split)
    ids = np.stack([found["C1"], found["C2"]], axis=1)
    return [
        (int(label), tuple(row.tolist()), tuple(dense.tolist()))
        for label, row, dense in zip(found["label"], ids, found["dense"], strict=True)
    ]


@pytest.mark.parametrize("recipe", ["nvidia-dlrm", "facebook-dlrm", "mlperf-dlrm"])
def test_ids_numbers_and_splits_of_a_recipe_are_those_computed_by_hand(tmp_path: Path, recipe: Any) -> None:
    least = {"min_count": 3} if recipe == "nvidia-dlrm" else {}
    summary = prepare(days(tmp_path), tmp_path / "out", recipe=recipe, **least, **SMALL)
    assert summary.rows == {split: len(rows) for split, rows in GOLDEN[recipe].items()}
    for split, rows in GOLDEN[recipe].items():
        found = rows_of(tmp_path / "out", split)
        wanted = [(row["label"], tuple(row["ids"]), tuple(row["dense"])) for row in rows]
        if split == "train":
            assert [row[:2] for row in found] != [row[:2] for row in wanted]  # shuffled
            found, wanted = sorted(found), sorted(wanted)
        assert [row[:2] for row in found] == [row[:2] for row in wanted]
        np.testing.assert_allclose([row[2] for row in found], [row[2] for row in wanted], rtol=1e-6, atol=1e-7)
    info = json.loads((tmp_path / "out" / "manifest.json").read_text())["info"]
    assert (info["recipe"], info["shuffle"], info["fit"]) == (recipe, 0, "all")


@pytest.mark.parametrize("recipe", ["nvidia-dlrm", "facebook-dlrm", "mlperf-dlrm"])
def test_the_saved_encoder_of_a_recipe_gives_the_same_ids(tmp_path: Path, recipe: Any) -> None:
    files = days(tmp_path)
    prepare(files, tmp_path / "out", recipe=recipe, shuffle=False, **SMALL)
    cells = [line.split("\t") for day in GOLDEN["days"] for line in day]
    columns = {name: [row[at] for row in cells] for at, name in enumerate(["I1", "I2", "I3", "C1", "C2"], start=1)}
    encoded = Encoder.load(tmp_path / "out").encode(columns)
    order = list(GOLDEN[recipe])
    for at, name in enumerate(("C1", "C2")):
        ids = np.concatenate([read_split(tmp_path / "out", split)[name] for split in order])
        assert encoded.ids[at].values.tolist() == ids.tolist()


def test_unseen_values_are_counted_also_where_no_id_is_reserved_for_them(tmp_path: Path) -> None:
    files = days(tmp_path)
    options = {**SMALL, "split": "file", "test": "day_1"}
    summary = prepare(files, tmp_path / "out", recipe="facebook-dlrm", fit="train", **options)
    cells = [[line.split("\t") for line in day] for day in GOLDEN["days"]]
    for at, feature in ((4, summary.features[3]), (5, summary.features[4])):
        known = {int(row[at] or "0", 16) for row in cells[0]}
        assert feature.unknown == {"train": 0, "test": sum(int(row[at] or "0", 16) not in known for row in cells[1])}
        assert feature.missing["test"] == sum(not row[at] for row in cells[1])
        assert feature.table_rows == len(known)


def test_what_the_caller_says_wins_over_the_recipe(tmp_path: Path) -> None:
    files = days(tmp_path)
    options: dict[str, Any] = {"split": "sequential", "test": 5, "transform": "log1p_clip0", "shuffle": False}
    prepare(files, tmp_path / "as", recipe="nvidia-dlrm", fit="train", min_count={"C2": 2}, **options, **SMALL)
    prepare(files, tmp_path / "plain", min_count={"*": 15, "C2": 2}, **options, **SMALL)
    assert published_bytes(tmp_path / "as") == published_bytes(tmp_path / "plain")
    schema = Schema.load(tmp_path / "as" / "schema.yaml")
    assert [feature.encoder.min_count for feature in schema.sparse] == [15, 2]  # type: ignore[union-attr]
    prepare(files, tmp_path / "keys", recipe="facebook-dlrm", keys=True, **SMALL)
    assert {table.rows for table in Schema.load(tmp_path / "keys" / "schema.yaml").tables} == {"dynamic"}


def test_a_single_file_is_cut_into_seven_days(tmp_path: Path) -> None:
    rows = make_rows(100)
    summary = prepare(write(tmp_path / "train.txt", rows), tmp_path / "out", recipe="facebook-dlrm")
    assert summary.rows == {"train": 86, "valid": 7, "test": 7}
    assert read_split(tmp_path / "out", "test")["label"].tolist() == [int(row[0]) for row in rows[86:93]]
    with pytest.raises(DataError, match="split day: 1 of 13 rows are of the last day"):
        prepare(write(tmp_path / "few", rows[:13]), tmp_path / "none", recipe="facebook-dlrm")


def test_choices_that_make_no_sense_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="recipe 'nvidia': expected one of lanner, nvidia-dlrm"):
        prepare("logs.tsv", tmp_path, recipe="nvidia")  # type: ignore[arg-type]
    logs = write(tmp_path / "logs.tsv", make_rows(10))
    with pytest.raises(ConfigError, match="min_count: no vocabulary table 'C27'; there are C1, C2"):
        prepare(logs, tmp_path / "out", min_count={"C27": 3})
    with pytest.raises(ConfigError, match="split day: valid first and test None; expected one of them to be second"):
        prepare(logs, tmp_path / "out", split="day", valid="first")
    with pytest.raises(SchemaError, match="'x' is no int value: expected an integer"):
        schema = Schema.parse({"sparse": [{"name": "a", "raw": "int", "fill": "x"}]})
        prepare(logs, tmp_path / "out", "csv", schema)
    assert not (tmp_path / "out").exists()
