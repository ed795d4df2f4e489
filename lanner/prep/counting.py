"""`TableCounter`: exact counts of the values of one table, over all features that share it."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lanner import storage
from lanner.errors import DataError
from lanner.hashindex import HashIndex
from lanner.kernels.hashing import values as kernels
from lanner.kernels.hashing import xxh64
from lanner.prep.chunk import Keys
from lanner.prep.first_rows import FirstRows
from lanner.prep.texts import text_buffers
from lanner.schema import Raw

_NONE_MISSING = np.zeros(0, np.bool_)
_CHECK_SEED = 0x5EED
"""Seed of the second hash of a text: two texts with the same key but another second hash are a collision."""


class TableCounter:
    """Counts of the values of raw kind `raw`, exact, in memory of about 40 bytes a distinct value (and its text).

    With `seen` the row in which each value was seen first is kept as well. Not for two threads at once; count files
    apart and `merge`, in any order: the counts are the same.
    """

    def __init__(self, raw: Raw, seen: bool = False) -> None:
        self.raw = raw
        self._counts: _NumberCounts | _TextCounts = _TextCounts() if raw == "string" else _NumberCounts()
        self._first = FirstRows() if seen else None

    def add(self, keys: Keys, rows: np.ndarray | None = None) -> None:
        """Count the present values of one feature of a chunk; `rows` (int64 [keys]) are their row numbers.

        Raises DataError when two different texts have the same 64-bit key.
        """
        self._counts.add(keys)
        if self._first is not None:
            assert rows is not None
            present = slice(None) if keys.missing is None else ~keys.missing
            self._first.add(keys.keys[present], rows[present])

    def merge(self, other: TableCounter) -> None:
        """Add the counts of `other`, which is left as it was."""
        if self.raw != other.raw:
            raise DataError(f"counts of {other.raw} values cannot be added to counts of {self.raw} values")
        self.add_table(other.table())

    def add_table(self, table: pa.Table) -> None:
        """Add counts as another counter's `table` gives them."""
        self._counts.add_table(table)
        if self._first is not None:
            self._first.add(table["key"].to_numpy(), table["first"].to_numpy())

    def __len__(self) -> int:
        """Number of distinct values."""
        return len(self._counts)

    def table(self) -> pa.Table:
        """Columns key and count (int64), for texts also text (large_string) and check (uint64).

        And first (int64), the row each was seen in first, where that is kept.
        """
        table = self._counts.table()
        return table if self._first is None else table.append_column("first", [self._first.of(table["key"].to_numpy())])

    def frequent(self, min_count: int) -> TableCounter:
        """A new counter of the values seen at least `min_count` times."""
        table, counter = self.table(), TableCounter(self.raw, self._first is not None)
        counter.add_table(table.filter(pc.greater_equal(table["count"], min_count)))
        return counter

    def save(self, uri: str | os.PathLike[str]) -> None:
        """Publish the counts as one Parquet file."""
        table = self.table().replace_schema_metadata({"lanner.raw": self.raw})
        with storage.publish(uri) as file:
            pq.write_table(table, file, compression="zstd")

    @classmethod
    def load(cls, uri: str | os.PathLike[str]) -> TableCounter:
        """Read what `save` wrote; raises DataError when the file is something else."""
        try:
            with storage.open_file(uri) as file:
                table = pq.read_table(file)
            raw = (table.schema.metadata or {})[b"lanner.raw"].decode()
        except (pa.ArrowException, KeyError) as error:
            raise DataError(f"{os.fspath(uri)}: not a file of value counts: {error}") from error
        counter = cls(raw, "first" in table.column_names)
        counter.add_table(table)
        return counter


class _NumberCounts:
    """Key and count side by side in one hash table."""

    def __init__(self) -> None:
        self._index = HashIndex()

    def __len__(self) -> int:
        return len(self._index)

    def add(self, keys: Keys) -> None:
        missing = _NONE_MISSING if keys.missing is None else keys.missing
        self._index.fill(kernels.count_keys, np.ascontiguousarray(keys.keys), missing)

    def add_table(self, table: pa.Table) -> None:
        self._index.fill(kernels.add_counts, table["key"].to_numpy(), table["count"].to_numpy())

    def table(self) -> pa.Table:
        keys, rows = self._index.items()
        return pa.table({"key": keys, "count": rows + 1})  # the value of a slot is a row plus 1, or a count


class _TextCounts:
    """Rows by key; counts, texts and a second hash by row."""

    def __init__(self) -> None:
        self._index = HashIndex()
        self._counts = np.zeros(0, np.int64)
        self._checks = np.zeros(0, np.uint64)
        self._texts: list[pa.Array] = []

    def __len__(self) -> int:
        return len(self._index)

    def add(self, keys: Keys) -> None:
        if keys.texts is None:
            raise DataError("counting texts needs the texts beside their keys")
        flat, texts = keys.keys, keys.texts
        if keys.missing is not None and keys.missing.any():
            present = np.flatnonzero(~keys.missing)
            flat, texts = flat[present], texts.take(pa.array(present))
        self._add(flat, np.ones(len(flat), np.int64), texts)

    def add_table(self, table: pa.Table) -> None:
        self._add(table["key"].to_numpy(), table["count"].to_numpy(), table["text"].combine_chunks())

    def _add(self, keys: np.ndarray, counts: np.ndarray, texts: pa.Array) -> None:
        if not len(keys):
            return
        known = len(self._index)
        rows = self._index.assign(keys)
        self._grow(len(self._index))
        first = np.empty(len(self._index) - known, np.int64)
        hashes = xxh64(*text_buffers(texts), seed=_CHECK_SEED)
        at = kernels.tally(rows, known, counts, hashes, self._counts, self._checks, first)
        if len(first):
            self._texts.append(texts.take(pa.array(first)).cast(pa.large_string()))
        if at >= 0:
            held = self._all_texts()[int(rows[at])].as_py()
            raise DataError(f"the texts {held!r} and {texts[at].as_py()!r} have the same 64-bit key {int(keys[at])}")

    def _grow(self, rows: int) -> None:
        if rows > len(self._counts):
            room = max(rows, 2 * len(self._counts), 1024)
            self._counts = np.concatenate([self._counts, np.zeros(room - len(self._counts), np.int64)])
            self._checks = np.concatenate([self._checks, np.zeros(room - len(self._checks), np.uint64)])

    def _all_texts(self) -> pa.Array:
        self._texts = [pa.concat_arrays(self._texts or [pa.array([], pa.large_string())])]
        return self._texts[0]

    def table(self) -> pa.Table:
        keys, rows = self._index.items()
        ordered = np.empty(len(keys), np.int64)
        ordered[rows] = keys
        count = len(keys)
        columns = {"key": ordered, "count": self._counts[:count], "text": self._all_texts()}
        return pa.table({**columns, "check": self._checks[:count]})


def by_frequency(table: pa.Table) -> np.ndarray:
    """Row order of a counter's table: count descending, ties by value ascending (texts by their bytes)."""
    return _sorted(table, "count", "descending")


def by_first_row(table: pa.Table) -> np.ndarray:
    """Row order of a counter's table: the row a value was seen in first ascending, ties by value ascending."""
    return _sorted(table, "first", "ascending")


def _sorted(table: pa.Table, column: str, direction: str) -> np.ndarray:
    value = "text" if "text" in table.column_names else "key"
    order = pc.sort_indices(table, sort_keys=[(column, direction), (value, "ascending")])
    positions: np.ndarray = order.to_numpy()
    return positions
