"""`Encoder`: raw columns → ids and numbers, by one path for chunks of a log and for single requests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lanner import storage
from lanner.errors import DataError, IdRangeError, SchemaError
from lanner.kernels.hashing import bucket, scatter
from lanner.prep.chunk import Keys, RawChunk
from lanner.prep.folding import folded
from lanner.prep.keys import Values
from lanner.prep.request import dense_block, sparse_keys
from lanner.prep.transforms import Transforms
from lanner.prep.vocabulary import Vocabulary
from lanner.schema import MISSING_ID, HashEncoder, IdentityEncoder, KeyEncoder, Schema, Sparse, VocabEncoder


@dataclass(slots=True)
class IdColumn:
    """Ids of one feature in the smallest unsigned type that holds its table (int64 beyond 32 bits).

    One id a row; or flat, with `offsets` (int64 [rows + 1]). `missing` counts the rows without a value. Ids from
    `first_id` on stand for known values; `missing_ids` of those below for missing ones. Where ids do not tell,
    `counted_unknown` says how many values are not in the vocabulary.
    """

    values: np.ndarray
    offsets: np.ndarray | None
    missing: int
    first_id: int = 0
    missing_ids: int = 0
    counted_unknown: int | None = None

    @property
    def unknown(self) -> int:
        """How many values are not in the vocabulary."""
        if self.counted_unknown is not None:
            return self.counted_unknown
        return int(np.count_nonzero(self.values < self.first_id)) - self.missing_ids if self.first_id else 0


@dataclass(slots=True)
class Encoded:
    """`rows` encoded rows: dense float32 [rows, D], `ids` in schema order, labels float32 [rows, L]."""

    rows: int
    dense: np.ndarray
    ids: list[IdColumn]
    labels: np.ndarray
    weight: np.ndarray | None = None
    group: np.ndarray | None = None


Count = int | Literal["dynamic"]


def table_rows(feature: Sparse, vocabulary: Vocabulary | None = None) -> Count:
    """Rows of the table that the ids of `feature` address; a `vocab` encoder needs its fitted vocabulary."""
    encoder = feature.encoder
    if isinstance(encoder, KeyEncoder):
        return "dynamic"
    if isinstance(encoder, HashEncoder):
        return encoder.size + 1
    if isinstance(encoder, IdentityEncoder):
        for name in ("missing", "outside"):
            if (given := getattr(encoder, name)) is not None and not 0 <= given < encoder.size:
                raise SchemaError(f"feature {feature.name!r}: {name} id {given} is outside 0..{encoder.size - 1}")
        return encoder.size
    if vocabulary is None:
        raise SchemaError(f"table {feature.table_name!r}: its vocabulary is not fitted yet")
    rows = max(vocabulary.rows, 1)
    return rows if encoder.max_rows is None else min(rows, encoder.max_rows)


def id_dtype(rows: Count) -> np.dtype:
    """The smallest unsigned type that holds ids 0..rows-1; int64 beyond 32 bits and for any keys."""
    if rows == "dynamic":
        return np.dtype(np.int64)
    for kind in (np.uint8, np.uint16, np.uint32):
        if rows - 1 <= np.iinfo(kind).max:
            return np.dtype(kind)
    return np.dtype(np.int64)


class Encoder:
    """Encodes by a fitted schema and its vocabularies (by table name).

    Raises SchemaError where the two do not fit together.
    """

    def __init__(self, schema: Schema, vocabularies: Mapping[str, Vocabulary]) -> None:
        self.schema = schema
        self.vocabularies = dict(vocabularies)
        self._transforms = Transforms(schema.dense)
        self._rows = [self._checked_rows(feature) for feature in schema.sparse]
        self._dtypes = [id_dtype(rows) for rows in self._rows]
        self._used = frozenset(part.source for part in (*schema.dense, *schema.sparse))

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Encoder:
        """Read `schema.yaml` and the vocabularies it names from a dataset, checkpoint or model version."""
        schema = Schema.load(storage.join(directory, "schema.yaml"))
        paths = {table.name: table.vocabulary for table in schema.tables if table.vocabulary}
        return cls(schema, {name: Vocabulary.load(storage.join(directory, path)) for name, path in paths.items()})

    def encode_chunk(self, chunk: RawChunk) -> Encoded:
        """Encode a chunk. Raises DataError naming column, row and value where the schema does not allow a value."""
        ids = [self._ids(at, keys) for at, keys in enumerate(chunk.sparse)]
        dense = self._transforms(chunk.dense)
        return Encoded(chunk.rows, dense, ids, chunk.labels, chunk.weight, chunk.group)

    def encode(self, columns: Mapping[str, Values], optional_missing: bool = True) -> Encoded:
        """Encode raw columns as logged, by raw column name: texts or numbers, None, NaN or "" for missing.

        A column left out means that all its values are missing, or is an error when `optional_missing` is false, and
        where an identity encoder has no id for missing values.
        Labels, weight and group may be given and are ignored. Raises DataError for columns the schema does not
        know, for lengths that differ, and for bad values.
        """
        rows = self._check_columns(columns, optional_missing)
        dense, sparse = dense_block(self.schema, columns, rows), sparse_keys(self.schema, columns, rows)
        return self.encode_chunk(RawChunk(rows, np.zeros((rows, 0), np.float32), dense, sparse))

    def _check_columns(self, columns: Mapping[str, Values], optional_missing: bool) -> int:
        """The number of rows."""
        unexpected = sorted(columns.keys() - self._used - set(self.schema.raw_columns))
        absent = [] if optional_missing else sorted(self._used - columns.keys())
        if unexpected or absent:
            parts = [f"missing columns {', '.join(absent)}"] if absent else []
            parts += [f"unexpected columns {', '.join(unexpected)}"] if unexpected else []
            raise DataError("; ".join(parts))
        lengths = {name: len(columns[name]) for name in columns if name in self._used}
        rows = next(iter(lengths.values()), 0)
        for name, length in lengths.items():
            if length != rows:
                raise DataError(f"column {name!r} has {length} rows, column {next(iter(lengths))!r} has {rows}")
        return rows

    def _checked_rows(self, feature: Sparse) -> Count:
        """Rows of the feature's table, where schema, encoder and vocabulary agree on it."""
        vocabulary, table = self.vocabularies.get(feature.table_name), self.schema.table(feature.table_name)
        where, encoder = f"table {table.name!r}", feature.encoder
        if isinstance(encoder, VocabEncoder) and vocabulary is not None:
            if vocabulary.raw != feature.raw:
                raise SchemaError(f"{where}: vocabulary of {vocabulary.raw} values, the schema says {feature.raw}")
            if vocabulary.unknown_buckets != encoder.unknown_buckets:
                seen = vocabulary.unknown_buckets
                raise SchemaError(f"{where}: vocabulary with {seen} unknown buckets, not {encoder.unknown_buckets}")
            if vocabulary.reserved != encoder.reserved:
                raise SchemaError(f"{where}: vocabulary with ids from {vocabulary.first_id}, not {encoder.first_id}")
        rows = table_rows(feature, vocabulary)
        if isinstance(table.rows, int) and (rows == "dynamic" or table.rows < rows):
            ids = "any 64-bit key" if rows == "dynamic" else f"{rows} ids"
            raise SchemaError(f"{where}: the schema says {table.rows} rows, its encoder gives {ids}")
        return table.rows if isinstance(table.rows, int) else rows

    def _ids(self, at: int, keys: Keys) -> IdColumn:
        feature, encoder = self.schema.sparse[at], self.schema.sparse[at].encoder
        missing = _missing_rows(keys)
        keys = folded(feature, keys)
        flat = np.empty(len(keys.keys), self._dtypes[at])
        first_id, unknown = 0, None
        if isinstance(encoder, VocabEncoder):
            first_id, vocabulary = encoder.first_id, self.vocabularies[feature.table_name]
            if encoder.reserved and encoder.max_rows is None:
                vocabulary.encode(keys.keys, keys.missing, flat)
            else:
                flat[:] = vocabulary.encode(keys.keys, keys.missing) % (encoder.max_rows or vocabulary.rows or 1)
                unknown = vocabulary.count_unknown(keys.keys, keys.missing)
        elif isinstance(encoder, HashEncoder):
            flat[:] = 1 + bucket(keys.keys, encoder.seed, encoder.size)
            if keys.missing is not None:
                flat[keys.missing] = MISSING_ID
        elif isinstance(encoder, KeyEncoder):
            flat[:] = scatter(keys.keys, encoder.seed).view(np.int64)
            if keys.missing is not None:
                flat[keys.missing] = MISSING_ID
        else:
            flat[:] = _identity(feature, encoder, keys)
        if keys.offsets is None:
            return IdColumn(flat, None, missing, first_id, _missing_rows(keys), unknown)
        if feature.hotness is None:
            return IdColumn(flat, keys.offsets, missing, first_id, counted_unknown=unknown)
        return IdColumn(*_fixed(feature, flat, keys.offsets), missing, first_id, missing * feature.hotness, unknown)


def _missing_rows(keys: Keys) -> int:
    if keys.offsets is not None:
        return int(np.count_nonzero(keys.offsets[1:] == keys.offsets[:-1]))
    return 0 if keys.missing is None else int(np.count_nonzero(keys.missing))


def _identity(feature: Sparse, encoder: IdentityEncoder, keys: Keys) -> np.ndarray:
    """The keys as ids: checked to lie in the table, missing ones replaced."""
    values = keys.keys.astype(np.int64)
    outside = outside_range(encoder, values)
    ids = values - encoder.lowest
    if keys.missing is not None and keys.missing.any():
        ids[keys.missing] = _missing_id(feature, encoder, int(np.flatnonzero(keys.missing)[0]))
        outside &= ~keys.missing
    if encoder.outside is not None:
        ids[outside] = encoder.outside
    elif outside.any():
        at = int(np.flatnonzero(outside)[0])
        row = at if keys.offsets is None else int(np.searchsorted(keys.offsets, at, side="right")) - 1
        raise IdRangeError(
            f"column {feature.source!r}, row {row}: {values[at]} is outside {encoder.values} "
            f"(identity encoder of table {feature.table_name!r})"
        )
    return ids


def outside_range(encoder: IdentityEncoder, values: np.ndarray) -> np.ndarray:
    """Which values (int64 [n]) have no id of their own (bool [n])."""
    outside: np.ndarray = (values < encoder.lowest) | (values > encoder.lowest + encoder.size - 1)
    return outside


def _missing_id(feature: Sparse, encoder: IdentityEncoder, row: int) -> int:
    if encoder.missing is None:
        raise DataError(
            f"column {feature.source!r}, row {row}: missing, and its identity encoder has no id for that; "
            f"give a value, or set encoder.missing of feature {feature.name!r} in the schema"
        )
    return encoder.missing


def _fixed(feature: Sparse, flat: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exactly `hotness` ids a row: a missing bag becomes that many missing ids."""
    hotness, lengths = feature.hotness or 0, np.diff(offsets)
    wrong = np.flatnonzero((lengths != 0) & (lengths != hotness))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(f"column {feature.source!r}, row {row}: {lengths[row]} values, expected {hotness}")
    empty = lengths == 0
    if empty.any():
        missing = MISSING_ID
        if isinstance(feature.encoder, IdentityEncoder):
            missing = _missing_id(feature, feature.encoder, int(np.flatnonzero(empty)[0]))
        whole = np.full(len(lengths) * hotness, missing, flat.dtype)
        whole[np.repeat(~empty, hotness)] = flat
        flat = whole
    return flat, np.arange(len(lengths) + 1, dtype=np.int64) * hotness
