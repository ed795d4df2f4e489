"""HugeCTR's files: model directories of one table, and what its `embedding_dump` writes of a collection.

A model directory (of `save_params_to_files`; HugeCTR's parameter server reads it too), rows in any order:

    key            int64 [rows]
    emb_vector     float32 [rows, dim]
    slot_id        uint64 [rows]; only of embeddings that keep each slot on one GPU

`<path>/embedding_collection_<number>` of `embedding_dump`, little-endian like all of it:

    meta_data      int32 [5]: tables, type of keys (0 uint32, 1 int64), type of values (0 float32, 1 float16), 0,
                   largest dim; then of each table int32 id, then uint64 rows, then int32 dim
    key<t>         for the t-th table a header of 128 bytes (int32 1, int32 id, zeros), then the keys
    weight<t>      the same (int32 2, int32 id, zeros), then values [rows, dim]

Neither holds optimizer state. A directory of a table that `dump` wrote is a model directory as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanner import storage
from lanner.embedding.dynamic.table import DynamicTable
from lanner.embedding.persistence import files
from lanner.embedding.persistence.gathering import Holders
from lanner.embedding.persistence.layout import KEY, WEIGHTS, Array, Block, Form, chosen
from lanner.embedding.store import Rows
from lanner.errors import DataError

if TYPE_CHECKING:
    from lanner.embedding.collection import EmbeddingCollection

SLOT, META = "slot_id", "meta_data"
_HEADER = 128
_KIND_KEY, _KIND_WEIGHT = 1, 2
_KEY_TYPES = {0: "<u4", 1: "<i8"}
_VALUE_TYPES = {0: "<f4", 1: "<f2"}


@dataclass(frozen=True)
class Stored:
    """A table in HugeCTR's files."""

    keys: str
    weights: str
    rows: int
    dim: int
    key_type: str = "<i8"
    value_type: str = "<f4"
    header: int = 0

    def __post_init__(self) -> None:
        """Raise DataError where the files are missing or their sizes differ from what `rows` and `dim` say."""
        for uri, width in ((self.keys, self._key_bytes), (self.weights, self._row_bytes)):
            if (seen := _size(uri)) != (expected := self.header + self.rows * width):
                raise DataError(f"{uri}: {seen} bytes, expected {expected} ({self.rows:,} rows of {width} bytes)")

    @property
    def _key_bytes(self) -> int:
        return np.dtype(self.key_type).itemsize

    @property
    def _row_bytes(self) -> int:
        return self.dim * np.dtype(self.value_type).itemsize

    def blocks(self) -> Iterator[Rows]:
        """The rows, some megabytes at a time, in the order of the files."""
        step = max(files.BLOCK // (4 * self.dim + 8), 1)
        with ExitStack() as stack:
            keys, weights = (stack.enter_context(storage.open_file(uri)) for uri in (self.keys, self.weights))
            keys.seek(self.header), weights.seek(self.header)
            for begin in range(0, self.rows, step):
                count = min(step, self.rows - begin)
                own = np.frombuffer(keys.read(count * self._key_bytes), self.key_type)
                values = np.frombuffer(weights.read(count * self._row_bytes), self.value_type)
                yield Rows(own.astype(np.int64), values.astype(np.float32).reshape(count, self.dim), {})


def model(path: str | os.PathLike[str]) -> Stored:
    """The table of a model directory. Raises DataError naming the file that is missing or has a wrong size."""
    keys, weights = storage.join(path, KEY), storage.join(path, WEIGHTS)
    count, size = _size(keys) // 8, _size(weights)
    if count and size % (4 * count):
        raise DataError(f"{weights}: {size} bytes are no float32 rows of equal length for {count:,} keys")
    return Stored(keys, weights, count, size // (4 * count) if count else 0)


def slots(path: str | os.PathLike[str]) -> Array:
    """`slot_id` of a model directory, uint64 [rows]."""
    with storage.open_file(storage.join(path, SLOT)) as file:
        return np.frombuffer(file.read(), "<u8")


def collection(path: str | os.PathLike[str], number: int = 0) -> dict[int, Stored]:
    """The tables, by their ids, of the collection `number` that HugeCTR's `embedding_dump(path)` wrote.

    Raises DataError naming the file that is missing, has a wrong size or does not belong there.
    """
    directory = storage.join(path, f"embedding_collection_{number}")
    uri = storage.join(directory, META)
    count, key_type, value_type, ids, rows, dims = _meta(uri)
    tables = {}
    for at in range(count):
        keys, weights = (storage.join(directory, f"{name}{at}") for name in ("key", "weight"))
        for file, kind in ((keys, _KIND_KEY), (weights, _KIND_WEIGHT)):
            if (seen := _head(file)) != (kind, ids[at]):
                own = f"expected kind {kind} of table {ids[at]}"
                raise DataError(f"{file}: its header says kind {seen[0]} of table {seen[1]}, {own}")
        tables[ids[at]] = Stored(keys, weights, rows[at], dims[at], key_type, value_type, _HEADER)
    return tables


def _meta(uri: str) -> tuple[int, str, str, list[int], list[int], list[int]]:
    _size(uri)
    with storage.open_file(uri) as file:
        data = file.read()
    count, key_type, value_type = np.frombuffer(data[:12].ljust(12, b"\0"), "<i4").tolist()
    if key_type not in _KEY_TYPES or value_type not in _VALUE_TYPES or len(data) != 20 + 16 * count:
        raise DataError(
            f"{uri}: {len(data)} bytes, {count} tables, key type {key_type}, value type {value_type}; expected types 0 "
            "or 1, and 20 bytes and 16 more a table"
        )
    ids, dims = (np.frombuffer(data, "<i4", count, begin).tolist() for begin in (20, 20 + 12 * count))
    rows = np.frombuffer(data, "<u8", count, 20 + 4 * count).tolist()
    return count, _KEY_TYPES[key_type], _VALUE_TYPES[value_type], ids, rows, dims


def _head(uri: str) -> tuple[int, int]:
    _size(uri)
    with storage.open_file(uri) as file:
        kind, table = np.frombuffer(file.read(8).ljust(8, b"\0"), "<i4").tolist()
    return kind, table


def _size(uri: str) -> int:
    if not storage.exists(uri):
        raise DataError(f"{uri}: no such file")
    return storage.size(uri)


def load(into: EmbeddingCollection, stored: Mapping[str, Stored]) -> None:
    """Put stored rows into the tables of a collection, by name. Optimizer state and `steps` stay as they are.

    A dynamic table holds these rows alone afterwards; of a static one, rows that are not stored keep their values.
    Raises DataError naming the table for another width, and for a key outside a static table. With several processes
    all must call it; each keeps its part.
    """
    peers = Holders(into.wire)

    def check() -> None:
        for name, source in stored.items():
            _check(into, name, source)

    def put() -> None:
        for name, source in stored.items():
            into.origins.pop(name, None)
            _put(into, name, source)

    peers.together(check)
    peers.together(put)


def _check(into: EmbeddingCollection, name: str, source: Stored) -> None:
    chosen(into, [name])
    if source.rows and source.dim != into.config(name).dim:
        raise DataError(f"table {name!r}: dim of {source.weights} is {source.dim}, expected {into.config(name).dim}")
    for rows in source.blocks() if into.config(name).rows != "dynamic" else ():
        last = into.config(name).static_rows - 1
        if (bad := rows.keys[(rows.keys < 0) | (rows.keys > last)]).size:
            raise DataError(f"table {name!r}: {source.keys} holds key {bad[0]}, expected 0 to {last}")


def _put(into: EmbeddingCollection, name: str, source: Stored) -> None:
    if (store := into.store(name)) is None:
        return
    if isinstance(store, DynamicTable):
        store.clear()
    for rows in source.blocks():
        into.place(name, rows)
    store.restored(name, into.steps)


def dump_model(of: EmbeddingCollection, table: str, path: str | os.PathLike[str], slot: int | None = None) -> None:
    """Write a table as a model directory, with `slot` as the `slot_id` of all its keys if it is given."""
    peers, directory = Holders(of.wire), os.fspath(path)
    peers.together(lambda: chosen(of, [table]))

    def named(block: Block) -> Block:
        return block if slot is None else {**block, SLOT: np.full(len(block[KEY]), slot, "<u8")}

    peers.first(lambda: files.clear(directory))
    with files.Output() as output:
        peers.first(lambda: output.open(directory, (KEY, WEIGHTS, *([] if slot is None else [SLOT]))))
        _gather(of, table, peers, lambda block: output.append(named(block)))
        peers.first(output.close)


def dump_collection(
    of: EmbeddingCollection,
    path: str | os.PathLike[str],
    table_names: Sequence[str] | None = None,
    number: int = 0,
) -> None:
    """Write tables (default: all) as HugeCTR's `embedding_dump` writes the collection `number`; ids count the tables.

    `meta_data` comes last. With several processes all must call it, and the first writes.
    """
    peers, directory = Holders(of.wire), storage.join(path, f"embedding_collection_{number}")
    names = peers.together(lambda: chosen(of, table_names))
    dims, counts = [of.config(name).dim for name in names], [0] * len(names)
    peers.first(lambda: storage.remove(directory))
    with files.Output() as output:
        for at, name in enumerate(names):
            keys, weights = f"key{at}", f"weight{at}"

            def append(block: Block, at: int = at, keys: str = keys, weights: str = weights) -> None:
                counts[at] += len(block[KEY])
                output.append({keys: block[KEY], weights: block[WEIGHTS]})

            def begin(at: int = at, keys: str = keys, weights: str = weights) -> None:
                output.open(directory, (keys, weights))
                output.append({keys: _header(_KIND_KEY, at), weights: _header(_KIND_WEIGHT, at)})

            peers.first(begin)
            _gather(of, name, peers, append)
        peers.first(output.close)
    peers.first(lambda: _write_meta(storage.join(directory, META), counts, dims))


def _gather(of: EmbeddingCollection, table: str, peers: Holders, sink: Callable[[Block], None]) -> None:
    """Give `sink` the keys and weights of a table in the first process."""
    groups = of.groups(table)
    form: Form = {KEY: ((), "<i8"), WEIGHTS: ((of.config(table).dim // len(groups),), "<f4")}
    held = of.blocks(table) if table in of.shards else iter(())
    peers.gather(({KEY: rows.keys, WEIGHTS: rows.weights} for rows in held), groups, form, sink)


def _header(kind: int, table: int) -> Array:
    header = np.zeros(_HEADER // 4, "<i4")
    header[:2] = kind, table
    return header


def _write_meta(uri: str, rows: Sequence[int], dims: Sequence[int]) -> None:
    count = len(rows)
    parts = [np.array([count, 1, 0, 0, max(dims, default=0)], "<i4"), np.arange(count, dtype="<i4")]
    parts += [np.array(rows, "<u8"), np.array(dims, "<i4")]
    with storage.publish(uri) as file:
        file.write(b"".join(part.tobytes() for part in parts))
