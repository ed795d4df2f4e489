"""Small Criteo-like logs and a plain reading of what prep writes, for the tests of the engine."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Row = list[str]


def make_rows(count: int, seed: int = 0, numeric: int = 13, categorical: int = 26) -> list[Row]:
    """Random rows: label, integers, hex keys from a skewed set, gaps in all but the label."""
    choose = random.Random(seed)
    rows = []
    for _ in range(count):
        numbers = ["" if choose.random() < 0.2 else str(int(choose.paretovariate(0.7)) - 3) for _ in range(numeric)]
        keys = [
            "" if choose.random() < 0.1 else f"{int(choose.paretovariate(0.8)) * 2654435761 % 2**32:08x}"
            for _ in range(categorical)
        ]
        rows.append([choose.choice("01"), *numbers, *keys])
    return rows


def text_of(rows: list[Row], ending: str = "\n", delimiter: str = "\t") -> bytes:
    return "".join(delimiter.join(row) + ending for row in rows).encode()


def write(path: Path, rows: list[Row]) -> Path:
    path.write_bytes(text_of(rows))
    return path


def read_split(out: Path, split: str) -> dict[str, np.ndarray]:
    """All columns of a split; list columns as arrays of lists, `dense` as a matrix."""
    tables = []
    for path in sorted((out / split).glob("part-*.arrow")):
        with pa.memory_map(str(path)) as source:
            tables.append(pa.ipc.open_file(source).read_all())
    table = pa.concat_tables(tables).combine_chunks()
    columns = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        assert column.null_count == 0
        if pa.types.is_fixed_size_list(column.type):
            columns[name] = column.flatten().to_numpy().reshape(len(column), -1)
        else:
            columns[name] = column.to_numpy(zero_copy_only=False)
    return columns


def read_vocab(out: Path, table: str) -> dict[str | int, int]:
    """value → id."""
    found = pq.read_table(out / "vocab" / f"{table}.parquet")
    return dict(zip(found["value"].to_pylist(), found["id"].to_pylist(), strict=True))


def published_bytes(out: Path) -> dict[str, bytes]:
    """Content of every file but manifest and report, which tell how it was made."""
    telling = ("manifest.json", "prep-report.html")
    files = [path for path in out.rglob("*") if path.is_file() and path.name not in telling]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}
