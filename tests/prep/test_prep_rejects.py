"""Bad rows: named by line and reason, or kept aside; never shifted, defaulted or silently lost."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from prep_logs import make_rows, read_split, text_of, write

from lanner.errors import DataError
from lanner.prep import prepare
from lanner.schema import Label, Schema, Sparse

ROWS = make_rows(100)


def with_bad_lines() -> list[list[str]]:
    rows = [list(row) for row in ROWS]
    rows[9].pop()
    rows[49].pop(3)
    rows[69].append("0a")
    return rows


def rejects(out: Path) -> list[dict[str, str]]:
    with (out / "rejects.tsv").open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_strict_names_every_bad_line_and_publishes_nothing(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs.tsv", with_bad_lines())
    with pytest.raises(DataError) as caught:
        prepare(logs, tmp_path / "out")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f"{logs}: 3 bad rows")
    assert [line.strip() for line in lines[1:]] == [
        "line 10: expected 40 fields, got 39", "line 50: expected 40 fields, got 39",
        "line 70: expected 40 fields, got 41",
    ]  # fmt: skip
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".prep"]


def test_tolerant_keeps_bad_lines_aside_and_counts_them(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs.tsv", with_bad_lines())
    summary = prepare(logs, tmp_path / "out", tolerant=True, split="none")
    assert summary.rows == {"train": 97}
    assert summary.rejected == {"fields": 3}
    kept = [row for number, row in enumerate(ROWS, start=1) if number not in (10, 50, 70)]
    assert read_split(tmp_path / "out", "train")["label"].tolist() == [int(row[0]) for row in kept]
    found = rejects(tmp_path / "out")
    assert [(row["file"], row["line"], row["reason"]) for row in found] == [
        (str(logs), line, "fields") for line in ("10", "50", "70")
    ]
    assert found[0]["text"].replace("\\t", "\t") == "\t".join(with_bad_lines()[9])
    info = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert info["info"]["rejected"] == {"fields": 3}
    assert "rejects.tsv" in info["files"]


def test_only_the_first_bad_lines_are_listed(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs.tsv", [ROWS[0], *[row[:-1] for row in ROWS]])
    with pytest.raises(DataError) as caught:
        prepare(logs, tmp_path / "out")
    lines = str(caught.value).splitlines()
    assert "at least 21 bad rows" in lines[0]
    assert [line.strip() for line in lines[1:]] == ["lines 2, 3, 4 and 17 more: expected 40 fields, got 39", "..."]


def test_equal_messages_share_a_line_and_others_keep_theirs(tmp_path: Path) -> None:
    rows = [list(row) for row in ROWS[:30]]
    for at in (2, 5, 9, 14, 20):
        rows[at].pop()
    rows[7][0] = "yes"
    rows[11][0] = "no"
    with pytest.raises(DataError) as caught:
        prepare(write(tmp_path / "logs.tsv", rows), tmp_path / "out")
    first, *others = (line.strip() for line in str(caught.value).splitlines()[1:])
    assert first == "lines 3, 6, 10 and 2 more: expected 40 fields, got 39"
    assert [line.partition(", expected")[0] for line in others] == ["line 8: label is 'yes'", "line 12: label is 'no'"]


@pytest.mark.parametrize("tolerant", [False, True])
def test_another_delimiter_fails_at_line_1(tmp_path: Path, tolerant: bool) -> None:
    (tmp_path / "logs.csv").write_bytes(text_of(ROWS, delimiter=","))
    with pytest.raises(DataError, match=r"logs.csv: line 1: expected 40 fields, got 1 \(is the delimiter right"):
        prepare(tmp_path / "logs.csv", tmp_path / "out", tolerant=tolerant)


@pytest.mark.parametrize("tolerant", [False, True])
def test_unlabelled_logs_are_no_labelled_ones(tmp_path: Path, shared_data: Path, tolerant: bool) -> None:
    with pytest.raises(DataError, match="line 1: expected 40 fields, got 39"):
        prepare(shared_data / "criteo_kaggle_unlabelled_200.tsv", tmp_path / "out", tolerant=tolerant)
    with pytest.raises(DataError, match="line 1: expected 39 fields, got 40"):
        prepare(shared_data / "criteo_terabyte_300.tsv", tmp_path / "out", tolerant=tolerant, labelled=False)


def test_a_wrong_file_is_found_before_any_other_is_read(tmp_path: Path) -> None:
    write(tmp_path / "day_0", ROWS)
    write(tmp_path / "day_1", [row[1:] for row in ROWS])
    with pytest.raises(DataError, match="day_1: line 1"):
        prepare(tmp_path / "day_*", tmp_path / "out")
    assert not list((tmp_path / "out" / ".prep").glob("*/done.json"))


LABELS = ["0", "1", "", "false", "2", "-1", "0.3"]


@pytest.mark.parametrize("soft", [False, True])
def test_labels_are_never_guessed(tmp_path: Path, soft: bool) -> None:
    logs = write(tmp_path / "logs.tsv", [[label, "ab"] for label in LABELS])
    schema = Schema(labels=(Label(name="label", soft=soft),), sparse=(Sparse(name="C1", raw="hex"),))
    bad = [label for label in LABELS if label not in ("0", "1") and not (soft and label == "0.3")]
    with pytest.raises(DataError) as caught:
        prepare(logs, tmp_path / "out", schema=schema, numeric=0, categorical=1, split="none")
    for label in LABELS:
        line = f"line {LABELS.index(label) + 1}: label is {label!r}, expected"
        assert (line in str(caught.value)) == (label in bad)
    summary = prepare(
        logs, tmp_path / "out", schema=schema, numeric=0, categorical=1, split="none", tolerant=True
    )  # fmt: skip
    assert summary.rejected == {"label": len(bad)}
    np.testing.assert_allclose(read_split(tmp_path / "out", "train")["label"], [0, 1, 0.3] if soft else [0, 1])


def test_rejected_text_stays_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "logs").write_bytes(b"1\t1\ta\n0\t1\tb\\c\rd\xff\n")
    prepare(tmp_path / "logs", tmp_path / "out", numeric=1, categorical=1, tolerant=True, split="none")
    (row,) = rejects(tmp_path / "out")
    assert row["text"] == "0\\t1\\tb\\\\c\\rd\N{REPLACEMENT CHARACTER}"


def test_strict_does_not_take_over_what_a_tolerant_run_staged(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs.tsv", with_bad_lines())
    with pytest.raises(DataError, match="the test split is empty"):
        prepare(logs, tmp_path / "out", tolerant=True, split="random", test=1e-12)
    with pytest.raises(DataError, match="3 bad rows"):
        prepare(logs, tmp_path / "out")
