"""Guessed schemas: what they say of small files, and that they prepare real ones without edits."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lanner import manifest
from lanner.cli.main import app
from lanner.errors import DataError
from lanner.prep.infer import infer
from lanner.schema import HashEncoder, Schema, VocabEncoder


def guessed(file: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["prep", "--infer", str(file), *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def prepare_as_told(text: str, folder: Path) -> Schema:
    """Run the command in the guess's second line on the guess itself."""
    words = shlex.split(text.split("\n")[1].removeprefix("#"))
    (folder / "schema.yaml").write_text(text)
    words[words.index("--schema") + 1] = str(folder / "schema.yaml")
    words[words.index("--out") + 1] = str(folder / "out")
    done = CliRunner().invoke(app, words[1:], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    manifest.read(folder / "out", "dataset")
    return Schema.load(folder / "out" / "schema.yaml")


@pytest.mark.parametrize(
    ("file", "words", "label"),
    [
        ("adult.data.gz", ["--no-header"], "c14"),
        ("avazu_3k.csv.gz", [], "click"),
        ("ml-latest-small/ratings.csv.gz", [], "rating"),
        ("ml-latest-small/movies.csv.gz", [], None),
        ("criteo_kaggle_10k.tsv.gz", ["--no-header"], "c0"),
        ("criteo_terabyte_300.tsv", ["--no-header"], "c0"),
        ("amazon_din_100.txt", ["--no-header"], "c4"),
        ("alimama_dmr_300.csv.gz", ["--no-header"], "c266"),
    ],
)
def test_real_samples_are_prepared_without_edits(
    shared_data: Path, tmp_path: Path, file: str, words: list[str], label: str | None
) -> None:
    schema = prepare_as_told(guessed(shared_data / file, *words), tmp_path)
    assert [found.name for found in schema.labels] == ([] if label is None else [label])
    assert schema.sparse


ROWS = [
    {"clicked": at % 3 == 0, "price": at * 1.25, "user_id": at % 400, "sku": f"{at // 2 % 1400 * 9973:08x}",
     "score": at % 7, "tags": ["a", "b"][: at % 3], "when": "2024-01-01", "row": f"r{at}", "big": 10**18 + at % 60}
    for at in range(3000)
]  # fmt: skip


def check_rows(schema: Schema) -> None:
    assert [number.name for number in schema.dense] == ["price"]
    found = {feature.name: feature for feature in schema.sparse}
    assert list(found) == ["user_id", "sku", "score_", "tags", "big"]
    assert isinstance(found["user_id"].encoder, VocabEncoder) and found["user_id"].raw == "int"
    assert isinstance(found["sku"].encoder, HashEncoder) and found["sku"].raw == "hex"
    assert found["score_"].source == "score"
    assert found["tags"].hotness is None


def test_json_and_parquet_with_lists_and_booleans(tmp_path: Path) -> None:
    rows = [{**row, "sku": f"{row['sku']}" if at % 2 else None} for at, row in enumerate(ROWS)]
    (tmp_path / "logs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "logs.parquet")
    for name in ("logs.jsonl", "logs.parquet"):
        (tmp_path / name[5:]).mkdir()
        text = guessed(tmp_path / name)
        schema = prepare_as_told(text, tmp_path / name[5:])
        check_rows(schema)
        assert [label.name for label in schema.labels] == ["clicked"]
        assert "#   when: one value alone" in text
        assert "#   row: another value in every row" in text


def test_csv_with_separators_nulls_and_odd_names(tmp_path: Path) -> None:
    lines = ["my label\tid list\tgenres\tamount\ttime"]
    lines += [
        f"{'yes' if at % 4 else 'no'}\t{at % 9} {at % 5}\tx|y{at % 3}\t{'?' if at % 10 else at / 7}\t{at}"
        for at in range(400)
    ]
    (tmp_path / "logs.csv").write_text("\n".join(lines))
    text = guessed(tmp_path / "logs.csv")
    schema = prepare_as_told(text, tmp_path)
    assert [(label.name, label.positive, label.negative) for label in schema.labels] == [
        ("my label", ("yes",), ("no",))
    ]
    assert [(feature.name, feature.separator, feature.raw) for feature in schema.sparse] == [
        ("id list", " ", "int"),
        ("genres", "|", "string"),
    ]
    assert [number.name for number in schema.dense] == ["amount"]
    assert "90 % missing" in text
    assert "--null '?'" in text


def test_a_glob_stands_for_its_first_file(tmp_path: Path) -> None:
    for name, columns in (("logs_1.csv", "a,click"), ("logs_2.csv", "b,click")):
        (tmp_path / name).write_text("\n".join([columns, *(f"{at % 7},{at % 2}" for at in range(60))]))
    assert guessed(tmp_path / "logs_*.csv") == infer(str(tmp_path / "logs_1.csv"))


def test_what_cannot_be_guessed(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("a,b\n")
    with pytest.raises(DataError, match=r"empty\.csv: no rows to infer a schema from"):
        infer(str(tmp_path / "empty.csv"))
    (tmp_path / "odd.jsonl").write_text("{\n")
    with pytest.raises(DataError, match=r"odd\.jsonl: not JSON lines"):
        infer(str(tmp_path / "odd.jsonl"))
    done = CliRunner().invoke(app, ["prep", str(tmp_path / "empty.csv")])
    assert done.exit_code == 2
    assert "--out" in done.output
