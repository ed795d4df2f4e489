"""Side tables: columns by key, from any kind of file, and what does not match."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prep_logs import published_bytes, read_split, read_vocab

from lanner.errors import ConfigError, DataError
from lanner.prep import prepare
from lanner.schema import Schema

SCHEMA = Schema.parse(
    {
        "labels": [{"name": "y"}],
        "dense": [{"name": "price"}],
        "sparse": [
            {"name": "brand", "encoder": {"kind": "vocab", "min_count": 1}},
            {"name": "tags", "hotness": None, "separator": "|", "encoder": {"kind": "vocab", "min_count": 1}},
        ],
    }
)
ITEMS = {"i1": (2.5, "łódź", "a|b"), "i2": (None, "b,c", ""), "7": (-1.0, "", "b")}
LOGS = [("1", "i1"), ("0", "7"), ("1", "i9"), ("0", ""), ("1", "i2"), ("0", "i9")]


def write_csv(path: Path, head: list[str], rows: list[tuple[Any, ...]], delimiter: str = ",") -> Path:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows([head, *rows])
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_items(folder: Path, kind: str) -> Path:
    head, rows = ["item", "price", "brand", "tags"], [(key, *values) for key, values in ITEMS.items()]
    path = folder / f"items.{kind}"
    if kind in ("csv", "csv.gz", "tsv"):
        return write_csv(path, head, rows, "\t" if kind == "tsv" else ",")
    if kind == "parquet":
        pq.write_table(
            pa.table({name: list(column) for name, column in zip(head, zip(*rows, strict=True), strict=True)}), path
        )
    else:
        path.write_text("".join(json.dumps(dict(zip(head, row, strict=True))) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "parquet", "jsonl"])
def test_columns_come_from_the_side_table_whatever_its_kind(tmp_path: Path, kind: str) -> None:
    logs = write_csv(tmp_path / "log.csv", ["y", "item"], LOGS)
    items = write_items(tmp_path, kind)
    summary = prepare(logs, tmp_path / "out", "csv", SCHEMA, split="none", join=(f"item={items}",))
    wide = [(y, *ITEMS.get(item, (None, None, None))) for y, item in LOGS]
    write_csv(tmp_path / "wide.csv", ["y", "price", "brand", "tags"], wide)
    prepare(tmp_path / "wide.csv", tmp_path / "wide", "csv", SCHEMA, split="none")
    assert published_bytes(tmp_path / "out") == published_bytes(tmp_path / "wide")
    assert summary.unmatched == 2  # i9 twice; the row without a key looked for nothing
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["info"]["unmatched"] == 2


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.sampled_from("uvw"), st.integers(0, 9)), min_size=1, max_size=60),
    st.sets(st.integers(0, 9), min_size=1),
    st.integers(20, 300),
)
def test_two_side_tables_equal_a_plain_lookup(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int]], known: set[int], block: int
) -> None:
    folder = tmp_path_factory.mktemp("join")
    encoding = {"kind": "identity", "size": 1000, "missing": 0}
    schema = Schema.parse(
        {"sparse": [{"name": name, "raw": "int", "encoder": encoding} for name in ("item", "age", "shop")]}
    )
    logs = write_csv(folder / "log.csv", ["user", "item"], rows)
    users = write_csv(folder / "users.csv", ["age", "user"], [(31, "u"), (42, "v")])
    shops = write_csv(folder / "shops.csv", ["item", "shop"], [(item, 100 + item) for item in sorted(known)])
    joins = (f"user={users}", f"item={shops}")
    options: dict[str, Any] = {"split": "none", "labelled": False, "block_bytes": block}
    summary = prepare(logs, folder / "out", "csv", schema, join=joins, **options)
    found = read_split(folder / "out", "train")
    assert found["age"].tolist() == [{"u": 31, "v": 42}.get(user, 0) for user, _ in rows]
    assert found["shop"].tolist() == [100 + item if item in known else 0 for _, item in rows]
    assert found["item"].tolist() == [item for _, item in rows]
    assert summary.unmatched == sum((user == "w") + (item not in known) for user, item in rows)


def test_dropped_rows_are_not_counted_and_a_new_side_file_is_read(tmp_path: Path) -> None:
    logs = write_csv(tmp_path / "log.csv", ["y", "item"], [*LOGS, ("5", "i9")])
    items = write_items(tmp_path, "csv")
    options: dict[str, Any] = {"split": "none", "join": (f"item={items}",), "tolerant": True, "overwrite": True}
    assert prepare(logs, tmp_path / "out", "csv", SCHEMA, **options).unmatched == 2
    write_csv(items, ["item", "price", "brand", "tags"], [("i9", 1, "new", "")])
    assert prepare(logs, tmp_path / "out", "csv", SCHEMA, **options).unmatched == 3
    assert read_vocab(tmp_path / "out", "brand") == {"new": 1}


def test_joins_that_cannot_be_are_refused(tmp_path: Path) -> None:
    logs = write_csv(tmp_path / "log.csv", ["y", "item"], LOGS)

    def join(text: str, source: str = "csv", schema: Schema | None = SCHEMA) -> None:
        prepare(logs, tmp_path / "out", source, schema, split="none", join=(text,))

    with pytest.raises(ConfigError, match="join 'items': expected a key column and a file"):
        join("items")
    with pytest.raises(FileNotFoundError, match=r"none\.csv: no such file to join"):
        join(f"item={tmp_path / 'none.csv'}")
    items = write_csv(tmp_path / "items.csv", ["item", "price", "brand", "tags"], [("a", 1, "", ""), ("a", 2, "", "")])
    with pytest.raises(ConfigError, match="Criteo logs have no key columns"):
        join(f"item={items}", "criteo", None)
    with pytest.raises(DataError, match=r"items\.csv: the key 'a' is there more than once"):
        join(f"item={items}")
    with pytest.raises(DataError, match=r"items\.csv: no column 'film'"):
        join(f"film={items}")
    write_csv(items, ["item", "price", "brand", "tags"], [("a", 1, "", ""), ("", 2, "", "")])
    with pytest.raises(DataError, match=r"items\.csv: row 2 has no key in column 'item'"):
        join(f"item={items}")
    items.write_text("item,price,brand,tags\na,1\n")
    with pytest.raises(DataError, match=r"items\.csv: line 2: 2 fields, expected 4"):
        join(f"item={items}")
    write_csv(items, ["item", "brand"], [("a", "b")])
    with pytest.raises(DataError, match=r"log\.csv: no column 'price', 'tags'"):
        join(f"item={items}")
