"""What the tests of the formats share: datasets to convert, and comparing the rows of two."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from dataset_files import MakeDataset, make_rows, make_schema

from lanner import Dataset
from lanner.schema import Schema

MULTI_HOT = [
    {"name": "one", "raw": "int", "encoder": {"kind": "identity", "size": 300}},
    {"name": "three", "raw": "int", "encoder": {"kind": "identity", "size": 70_000}, "hotness": 3},
    {"name": "two", "raw": "int", "encoder": {"kind": "identity", "size": 9}, "hotness": 2},
]
RAGGED = [*MULTI_HOT, {"name": "bag", "raw": "int", "encoder": {"kind": "identity", "size": 1000}, "hotness": None}]
TABLES = [{"name": name, "rows": rows} for name, rows in (("one", 300), ("three", 70_000), ("two", 9), ("bag", 1000))]


def bag_schema(ragged: bool) -> Schema:
    """One, three and two ids a row and, where asked for, any number."""
    sparse = RAGGED if ragged else MULTI_HOT
    numbers = [{"name": "d0"}, {"name": "d1"}]
    tables = TABLES[: len(sparse)]
    return Schema.parse({"labels": [{"name": "label"}], "dense": numbers, "sparse": sparse, "tables": tables})


def bag_dataset(make: MakeDataset, rows: dict[str, int], ragged: bool = False, name: str = "bags") -> Path:
    """Random rows for `bag_schema`, in the given splits."""
    random, schema = np.random.default_rng(5), bag_schema(ragged)
    files = {}
    for split, count in rows.items():
        columns = {
            "label": random.integers(0, 2, count).astype(np.uint8),
            "dense": random.normal(size=(count, 2)).astype(np.float32),
            "one": random.integers(0, 300, count).astype(np.uint16),
        }
        for feature in schema.sparse[1:]:
            lengths = np.full(count, feature.hotness) if feature.hotness else random.integers(0, 5, count)
            offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
            size = int(schema.table(feature.name).rows or 0)
            kind = next(t for t in (np.uint8, np.uint16, np.uint32) if size - 1 <= np.iinfo(t).max)
            values = random.integers(0, size, offsets[-1]).astype(kind)
            columns[feature.name] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
        files[f"{split}/part-00000.arrow"] = columns
    return make(schema, files, name)


def one_hot_dataset(make: MakeDataset, rows: dict[str, int], name: str = "plain") -> Path:
    """Random rows with one id each for three tables, and three numbers, of which the first is that of the row."""
    schema = make_schema()
    identity = [{"kind": "identity", "size": table.rows} for table in schema.tables]
    values = schema.model_dump(mode="json")
    for feature, encoder in zip(values["sparse"], identity, strict=True):
        feature |= {"raw": "int", "encoder": encoder}
    schema = Schema.parse(values)
    files = {}
    for seed, (split, count) in enumerate(rows.items()):
        files[f"{split}/part-00000.arrow"] = make_rows(schema, count, seed)
    return make(schema, files, name)


def assert_same(left: str | Path, right: str | Path) -> None:
    """Two datasets hold the same splits, rows, and columns."""
    one, two = Dataset.open(left), Dataset.open(right)
    for split in ("train", "valid", "test"):
        ours, theirs = one.split(split), two.split(split)
        assert (ours is None) == (theirs is None), split
        if ours is None or theirs is None:
            continue
        assert len(ours) == len(theirs)
        a, b = ours.slice(0, len(ours)), theirs.slice(0, len(theirs))
        assert torch.equal(a.labels, b.labels)
        assert torch.equal(a.dense, b.dense)
        assert a.bags.names == b.bags.names
        assert torch.equal(a.bags.values.long(), b.bags.values.long())
        assert (a.bags.offsets is None) == (b.bags.offsets is None)
        if a.bags.offsets is not None and b.bags.offsets is not None:
            assert torch.equal(a.bags.offsets.long(), b.bags.offsets.long())


def files_of(folder: Path, *left_out: str) -> dict[str, bytes]:
    """Every file below a folder by its name there, but prep's report and those left out."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(p.relative_to(folder)): p.read_bytes() for p in paths if p.name not in (*left_out, "prep-report.html")}
