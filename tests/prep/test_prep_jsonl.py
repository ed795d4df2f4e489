"""JSON lines: the same rows as from CSV, true line numbers, and what is no row."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prep_logs import published_bytes, read_split, read_vocab

from lanner.errors import DataError
from lanner.prep import prepare
from lanner.prep.sources import BadRow, ReadOptions, open_source
from lanner.schema import Schema

SCHEMA = Schema.parse(
    {
        "labels": [{"name": "click"}],
        "dense": [{"name": "price"}],
        "sparse": [
            {"name": "site", "raw": "hex", "encoder": {"kind": "vocab", "min_count": 1}},
            {"name": "user", "raw": "int", "encoder": {"kind": "vocab", "min_count": 1}},
            {"name": "town", "encoder": {"kind": "vocab", "min_count": 1}},
            {"name": "tags", "hotness": None, "separator": "|", "encoder": {"kind": "vocab", "min_count": 1}},
        ],
    }
)
ROWS: list[dict[str, Any]] = [
    {"click": 1, "price": 2.5, "site": "0a1f", "user": 9007199254740993, "town": "Łódź", "tags": "a|b"},
    {"click": 0, "price": -1e-3, "site": "ff", "user": 9007199254740992, "town": "a,b", "tags": "b"},
    {"click": "1", "price": None, "site": None, "user": -5, "town": 'say "x"', "tags": None},
    {"click": 0, "price": 4000000000, "site": "0a1f", "user": "7", "town": "", "tags": ""},
    {"click": 1.0, "price": 0.1, "site": "FF", "user": None, "town": "[a", "tags": "{b"},
] * 30


def write_json(path: Path, rows: list[Any]) -> Path:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)) + "\n" for row in rows)
    )
    return path


def read(path: Path, schema: Schema = SCHEMA, block: int = 200) -> tuple[int, list[BadRow]]:
    bad: list[BadRow] = []
    chunks = list(open_source("json").read(str(path), schema, ReadOptions(block_bytes=block), bad.append))
    return sum(chunk.rows for chunk in chunks), bad


def test_the_same_dataset_as_from_csv(tmp_path: Path) -> None:
    with (tmp_path / "logs.csv").open("w", newline="") as sink:
        writer = csv.DictWriter(sink, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)
    prepare(tmp_path / "logs.csv", tmp_path / "csv", "csv", SCHEMA)
    lines = write_json(tmp_path / "logs.json", [{key: row[key] for key in row if row[key] is not None} for row in ROWS])
    prepare(lines, tmp_path / "json", "json", SCHEMA, block_bytes=500)
    assert published_bytes(tmp_path / "json") == published_bytes(tmp_path / "csv")
    packed = tmp_path / "logs.json.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + lines.read_bytes().replace(b"\n", b"\r\n\r\n")))
    prepare(packed, tmp_path / "packed", "json", SCHEMA)
    assert published_bytes(tmp_path / "packed") == published_bytes(tmp_path / "csv")


def test_lists_and_booleans(tmp_path: Path) -> None:
    label = {"name": "click", "positive": ["true"], "negative": ["false"]}
    tags = {"name": "tags", "hotness": None, "max_hotness": 2, "encoder": {"kind": "vocab", "min_count": 1}}
    schema = Schema.parse({"labels": [label], "sparse": [tags]})
    rows = [{"click": True, "tags": [3, "x", None, "y"]}, {"click": False}, {"click": False, "tags": ["y"]}]
    prepare(write_json(tmp_path / "logs.json", rows), tmp_path / "out", "json", schema, split="none")
    ids, found = read_vocab(tmp_path / "out", "tags"), read_split(tmp_path / "out", "train")
    assert set(ids) == {"x", "y"}
    assert found["click"].tolist() == [1, 0, 0]
    assert [row.tolist() for row in found["tags"]] == [[ids["x"], ids["y"]], [], [ids["y"]]]


BAD: list[tuple[str, str, str]] = [
    ('{"click": 1', "json", "not JSON: Expecting"),
    ('{"click": 1} {"click": 0}', "json", "not JSON: Extra data"),
    ("[1]", "json", "a list, expected an object with the columns as keys"),
    ('{"click": NaN}', "json", "NaN is no JSON number"),
    ('{"click": 1, "town": {"k": 1}}', "type", "column 'town': {'k': 1} is not a single value"),
    ('{"click": 1, "town": ["a"]}', "type", "column 'town': ['a'] is not a single value"),
    ('{"click": 1, "tags": ["a"]}', "type", "column 'tags': ['a'] is not a single value"),
    ('{"click": 2}', "label", "column 'click': label '2' is not 0 or 1"),
    ('{"click": "false"}', "label", "column 'click': label 'false' is not 0 or 1"),
    ('{"click": null}', "label", "column 'click': label None is not 0 or 1"),
    ('{"click": 1, "user": 1.5}', "integer", "column 'user': '1.5' is not an integer of 64 bits with sign"),
    ('{"click": 1, "user": 18446744073709551616}', "integer", "is not an integer of 64 bits"),
    ('{"click": 1, "site": "xyz"}', "hex", "column 'site': 'xyz' is not 1 to 8 hexadecimal digits"),
    ('{"click": 1, "price": "dear"}', "number", "column 'price': 'dear' is not a finite number"),
]


@settings(max_examples=15)
@given(st.lists(st.integers(0, len(BAD) - 1), max_size=6), st.integers(1, 30), st.integers(60, 3000), st.booleans())
def test_bad_lines_are_found_and_the_rest_is_kept(
    tmp_path_factory: pytest.TempPathFactory, wrong: list[int], gap: int, block: int, blank: bool
) -> None:
    rows: list[Any] = list(ROWS)
    places = []
    for number, at in enumerate(wrong):
        places.append(number * gap + number)
        rows.insert(places[-1], BAD[at][0])
    if blank:
        rows = [line for row in rows for line in (row, " ")]
    file = write_json(tmp_path_factory.mktemp("json") / "logs.json", rows)
    count, bad = read(file, block=block)
    assert count == len(ROWS)
    assert [row.line for row in bad] == [place * (2 if blank else 1) + 1 for place in places]
    for row, at in zip(bad, wrong, strict=True):
        text, reason, message = BAD[at]
        assert (row.reason, row.text) == (reason, text)
        assert message in row.message


def test_text_that_is_not_utf8_is_a_bad_row(tmp_path: Path) -> None:
    file = write_json(tmp_path / "logs.json", ROWS)
    file.write_bytes(b'{"click": 1, "town": "\xff"}\n' + file.read_bytes())
    count, bad = read(file)
    assert (count, [(row.line, row.reason) for row in bad]) == (len(ROWS), [(1, "encoding")])


def test_a_list_column_takes_lists_of_single_values_only(tmp_path: Path) -> None:
    schema = Schema.parse({"sparse": [{"name": "tags", "hotness": None}]})
    rows: list[Any] = [{"tags": ["[a", "b"]}, {"tags": "a|b"}, {"tags": [["a"]]}, {"tags": None}, {"tags": [{}]}]
    count, bad = read(write_json(tmp_path / "logs.json", rows), schema)
    assert count == 2
    assert [(row.line, row.message) for row in bad] == [
        (2, "column 'tags': 'a|b' is not a list of single values"),
        (3, "column 'tags': [['a']] is not a list of single values"),
        (5, "column 'tags': [{}] is not a list of single values"),
    ]


def test_a_key_that_is_never_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no line has the key 'tags'"):
        read(write_json(tmp_path / "logs.json", [{"click": 1, "user": 5, "town": "x", "site": "f", "price": 1}]))
    (tmp_path / "none.json").write_text("")
    assert read(tmp_path / "none.json") == (0, [])


def test_a_cut_file_is_damaged(tmp_path: Path) -> None:
    file = write_json(tmp_path / "logs.json", ROWS)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(file.read_bytes())[:-12])
    with pytest.raises(DataError, match=r"cut\.gz: the gzip stream ends before its end mark .*rows could be read"):
        read(tmp_path / "cut.gz")
