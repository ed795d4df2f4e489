"""`Vocabulary`: the values of one table that have an id of their own, and the ids they have.

Id 0 is the missing value; unknown values take id 0 too, or one of the ids 1..n of n unknown buckets; known values
follow from `first_id` on by falling count, ties by value ascending (texts by their bytes). See `VocabEncoder` for
conventions that number otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lanner import storage
from lanner.errors import DataError
from lanner.hashindex import HashIndex
from lanner.kernels import parallel
from lanner.kernels.hashing import narrow, values, xxh64
from lanner.prep.counting import TableCounter, by_first_row, by_frequency
from lanner.prep.texts import text_buffers
from lanner.schema import MISSING_ID, Raw, VocabEncoder

UNKNOWN = "<unknown>"
"""What `decode` gives for an id that stands for unknown values."""

_NONE_MISSING = np.zeros(0, np.bool_)
_GRAIN = 1 << 14


class Vocabulary:
    """Known values in id order: `keys` and `counts` (int64 [n]), and `texts` (large_string) for raw `string`."""

    def __init__(
        self,
        raw: Raw,
        keys: np.ndarray,
        counts: np.ndarray,
        texts: pa.Array | None = None,
        unknown_buckets: int = 0,
        reserved: bool = True,
    ) -> None:
        self.raw, self.keys, self.counts, self.texts = raw, keys, counts, texts
        self.unknown_buckets, self.reserved = unknown_buckets, reserved
        self._first = np.int64(1 + unknown_buckets), np.uint64(unknown_buckets)
        self.index = HashIndex(len(keys))
        if self.index.insert(keys, np.arange(len(keys))) != len(keys):
            raise DataError(f"vocabulary: {len(keys)} values, but only {len(self.index)} distinct ones")
        self._narrow: tuple[np.ndarray, np.uint64] | None = None

    @classmethod
    def fit(cls, counter: TableCounter, encoder: VocabEncoder) -> Vocabulary:
        """The values counted at least `min_count` times, the `max_size` most frequent ones, in the encoder's order."""
        table = counter.table()
        table = table.filter(pc.greater_equal(table["count"], encoder.min_count))
        table = table.take(by_frequency(table)[: encoder.max_size])
        if encoder.order == "seen":
            table = table.take(by_first_row(table))
        texts = table["text"].combine_chunks() if counter.raw == "string" else None
        keys, counts = table["key"].to_numpy(), table["count"].to_numpy()
        return cls(counter.raw, keys, counts, texts, encoder.unknown_buckets, encoder.reserved)

    @property
    def first_id(self) -> int:
        """Id of the first known value."""
        return 1 + self.unknown_buckets if self.reserved else 0

    @property
    def ids(self) -> np.ndarray:
        """Ids of `keys`, int64 [n]."""
        return np.arange(self.first_id, self.rows)

    @property
    def rows(self) -> int:
        """Rows of the embedding table: known values, unknown buckets and the missing value."""
        return self.first_id + len(self.keys)

    def encode(self, keys: np.ndarray, missing: np.ndarray | None = None, out: np.ndarray | None = None) -> np.ndarray:
        """Ids of canonical keys (int64 or uint32 [n]), int64 or written to `out` of any integer type that fits.

        Where `missing` (bool [n]) is true the id is 0, whatever the key. So it is for unknown keys of a vocabulary
        without reserved ids.
        """
        ids = np.empty(len(keys), np.int64) if out is None else out
        masked = _NONE_MISSING if missing is None else missing
        beside = keys, masked, *self._first, ids
        if self.raw == "hex" and keys.dtype == np.uint32:
            parallel.run(narrow.vocabulary_ids, len(keys), *self._narrow_slots(), *beside, grain=_GRAIN)
        else:
            where = self.index.slots, self.index.plan
            parallel.run(values.vocabulary_ids, len(keys), *where, *beside, grain=_GRAIN)
        if not self.reserved:
            np.subtract(np.maximum(ids, 1), 1, out=ids)
        return ids

    def count_unknown(self, keys: np.ndarray, missing: np.ndarray | None = None) -> int:
        """How many of `keys` are neither missing nor known."""
        absent = self.index.find(keys) < 0
        return int(np.count_nonzero(absent if missing is None else absent & ~missing))

    def _narrow_slots(self) -> tuple[np.ndarray, np.uint64]:
        """Slots for 32-bit keys, made at first use (by two threads at once, perhaps: both make the same)."""
        if self._narrow is None:
            self._narrow = narrow.build(self.keys)
        return self._narrow

    def decode(self, ids: Sequence[int] | np.ndarray) -> list[Any]:
        """The values of `ids` as logged: hex as 8 digits, int, or text; None for 0, UNKNOWN for unknown buckets.

        Raises DataError naming an id outside the table.
        """
        rows = np.asarray(ids, np.int64)
        outside = np.flatnonzero((rows < 0) | (rows >= self.rows))
        if len(outside):
            raise DataError(f"vocabulary: id {int(rows[outside[0]])} is outside 0..{self.rows - 1}")
        known = rows >= self.first_id
        values = iter(self._values(rows[known] - self.first_id))
        reserved = (None if row == MISSING_ID else UNKNOWN for row in rows[~known].tolist())
        return [next(values) if is_known else next(reserved) for is_known in known.tolist()]

    def _values(self, positions: np.ndarray) -> list[Any]:
        if self.texts is not None:
            texts: list[Any] = self.texts.take(pa.array(positions)).to_pylist()
            return texts
        keys = self.keys[positions].tolist()
        return [f"{key:08x}" for key in keys] if self.raw == "hex" else keys

    def save(self, uri: str | os.PathLike[str]) -> None:
        """Publish as Parquet with columns value (text for hex and string, else int64), id and count (int64)."""
        value = pa.array(self.keys) if self.raw == "int" else self.texts
        if self.raw == "hex":
            value = pa.array(self._values(np.arange(len(self.keys))), pa.large_string())
        table = pa.table({"value": value, "id": self.ids, "count": self.counts})
        notes = {"lanner.raw": self.raw, "lanner.unknown_buckets": str(self.unknown_buckets)}
        if not self.reserved:
            notes["lanner.reserved"] = "no"
        with storage.publish(uri) as file:
            pq.write_table(table.replace_schema_metadata(notes), file, compression="zstd")

    @classmethod
    def load(cls, uri: str | os.PathLike[str]) -> Vocabulary:
        """Read what `save` wrote; raises DataError naming the file when it is not a whole vocabulary."""
        try:
            with storage.open_file(uri) as file:
                table = pq.read_table(file).sort_by("id")
            notes = table.schema.metadata or {}
            raw: Raw = notes[b"lanner.raw"].decode()
            buckets, reserved = int(notes[b"lanner.unknown_buckets"]), b"lanner.reserved" not in notes
            ids, counts = table["id"].to_numpy(), table["count"].to_numpy()
            texts = None if raw == "int" else table["value"].combine_chunks().cast(pa.large_string())
            keys = table["value"].to_numpy() if texts is None else _keys_of(raw, texts)
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise DataError(f"{os.fspath(uri)}: not a vocabulary: {error}") from error
        first = buckets + 1 if reserved else 0
        if not np.array_equal(ids, np.arange(first, first + len(keys))):
            raise DataError(f"{os.fspath(uri)}: ids do not run from {first} upwards without gaps")
        return cls(raw, keys, counts, texts if raw == "string" else None, buckets, reserved)


def _keys_of(raw: Raw, texts: pa.Array) -> np.ndarray:
    if raw == "string":
        return xxh64(*text_buffers(texts)).view(np.int64)
    return np.array([int(text, 16) for text in texts.to_pylist()], np.int64)
