"""Side tables: columns of another file, found by a key that both files have."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lanner import storage
from lanner.errors import ConfigError, DataError
from lanner.hashindex import HashIndex
from lanner.prep.assemble import group_keys
from lanner.prep.sources import ReadOptions
from lanner.prep.sources.blocks import line_blocks
from lanner.prep.sources.csv import check_columns, header_of, split_records, text_rows
from lanner.prep.sources.jsonl import JsonColumns, json_blocks, json_rows

_HEAD_BYTES = 1 << 20
_STATE = ("size", "mtime", "LastModified", "modificationTime", "updated", "ETag", "etag", "md5Hash", "Last-Modified")
_OPTIONS = ReadOptions(null=("",))


@dataclass(frozen=True, slots=True)
class SideTable:
    """`columns` of a file by `key`, all in memory."""

    key: str
    columns: dict[str, pa.Array]
    index: HashIndex

    def look_up(self, keys: pa.Array) -> tuple[dict[str, pa.Array], np.ndarray]:
        """The columns for `keys`, null where there is no such key; and which keys (bool [n]) are not there."""
        wanted = group_keys(keys)
        places = self.index.find(wanted)
        absent = places < 0
        rows = pa.array(places, mask=absent)
        return {name: column.take(rows) for name, column in self.columns.items()}, absent & (wanted != _no_key())


def split_join(text: str) -> tuple[str, str]:
    """Key and file of `key=file`. Raises ConfigError."""
    key, equals, file = text.partition("=")
    if not key or not equals or not file:
        raise ConfigError(f"join {text!r}: expected a key column and a file, like item=items.csv")
    return key, file


def file_state(file: str) -> tuple[str, ...]:
    """What changes when a file is replaced. Raises FileNotFoundError."""
    info = storage.status(file)
    if info is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file)
    return tuple(str(info.get(key)) for key in _STATE)


def side_tables(joins: Sequence[str], wanted: Sequence[str], lists: frozenset[str]) -> list[SideTable]:
    """A table for each `key=file`, with those of the wanted columns that it has; `lists` are lists in JSON files.

    Raises DataError naming the file where its key is absent, missing or there twice, or where a row is bad.
    """
    pairs = map(split_join, joins)
    return [_side_table(key, file, file_state(file), tuple(wanted), lists) for key, file in pairs]


@lru_cache(maxsize=8)
def _side_table(
    key: str, file: str, state: tuple[str, ...], wanted: tuple[str, ...], lists: frozenset[str]
) -> SideTable:
    """Kept from one input file to the next, as long as the side file is the same."""
    names = _names(file, wanted)
    check_columns(file, [key], names)
    taken = [key, *(name for name in wanted if name in names and name != key)]
    table = _read(file, taken, lists)
    keys = group_keys(table[key].combine_chunks())
    if len(gaps := np.flatnonzero(keys == _no_key())):
        raise DataError(f"{file}: row {int(gaps[0]) + 1} has no key in column {key!r}")
    index = HashIndex(len(keys))
    rows = index.assign(keys)
    if len(again := np.flatnonzero(rows != np.arange(len(keys)))):
        raise DataError(f"{file}: the key {table[key][int(again[0])].as_py()!r} is there more than once")
    return SideTable(key, {name: table[name].combine_chunks() for name in taken[1:]}, index)


def kind_of(file: str) -> str:
    """`parquet`, `json`, `tsv` or `csv`, by the ending of its name."""
    name = file.removesuffix(".gz").removesuffix(".zst")
    ending = name.rpartition(".")[2].lower()
    return "json" if ending in ("json", "jsonl", "ndjson") else ending if ending in ("parquet", "tsv") else "csv"


def _options(file: str) -> ReadOptions:
    return replace(_OPTIONS, delimiter="\t") if kind_of(file) == "tsv" else _OPTIONS


def _names(file: str, wanted: Sequence[str]) -> list[str]:
    """The columns of `file`; of JSON lines those wanted, and the keys of the first line."""
    if kind_of(file) == "parquet":
        with storage.open_file(file) as source:
            names: list[str] = pq.ParquetFile(source).schema_arrow.names
            return names
    if kind_of(file) != "json":
        return header_of(file, _options(file))
    for block in line_blocks(file, _HEAD_BYTES, 0):
        text = block.tobytes()
        first = json.loads(text.split(b"\n", 1)[0])
        return list(dict.fromkeys([*first, *(name for name in wanted if json.dumps(name).encode() in text)]))
    return []


def _read(file: str, names: list[str], lists: frozenset[str]) -> pa.Table:
    if kind_of(file) == "parquet":
        with storage.open_file(file) as source:
            return pq.read_table(source, columns=names)
    parts = []
    if kind_of(file) == "json":
        columns = JsonColumns(tuple(names), lists & frozenset(names))
        for block in json_blocks(file, columns, _OPTIONS.block_bytes):
            found = json_rows(*block, columns)
            parts.append((found.columns, found.bad))
    else:
        for records in split_records(file, names, _options(file)):
            rows = text_rows(*records, names, _options(file))
            parts.append((rows.columns, rows.bad))
    for _, bad in parts:
        if bad:
            raise DataError(f"{file}: line {bad[0].line}: {bad[0].message}")
    if not parts:
        raise DataError(f"{file}: no rows")
    return pa.concat_tables([pa.table(columns) for columns, _ in parts])


@lru_cache(maxsize=1)
def _no_key() -> int:
    return int(group_keys(pa.array([""]))[0])
