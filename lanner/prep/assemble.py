"""Named raw columns → `RawChunk`, with every row that breaks the schema sorted out and explained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lanner.kernels.hashing import xxh64
from lanner.prep import bags, labels
from lanner.prep.chunk import Keys, RawChunk
from lanner.prep.encoder import outside_range
from lanner.prep.folding import folded
from lanner.prep.keys import scalar_keys
from lanner.prep.numbers import numbers_of
from lanner.prep.texts import as_arrow, is_text, plain_texts, text_buffers
from lanner.schema import Dense, IdentityEncoder, Label, Schema, Sparse, VocabEncoder

_REASONS = {"hex": "hex", "int": "integer", "string": "text"}


@dataclass(frozen=True, slots=True)
class Problem:
    """Why row `row` of the columns is bad: a short word to count by, and a sentence for people."""

    row: int
    reason: str
    message: str


def assemble(
    columns: Mapping[str, pa.Array], rows: int, schema: Schema, time: str | None = None
) -> tuple[RawChunk, list[Problem]]:
    """A chunk of the good rows, and the first problem of each bad one, in row order.

    `columns` holds an Arrow array of `rows` values for every raw column of the schema and for `time`. Raises
    DataError where the type of a whole column is wrong.
    """
    work = _Assembly(columns, rows, schema, time)
    chunk = work.chunk()
    if not work.bad.any():
        return chunk, []
    good = pa.array(~work.bad)
    kept = {name: array.filter(good) for name, array in columns.items()}
    chunk = _Assembly(kept, rows - len(work.problems), schema, time).chunk()
    return chunk, [work.problems[row] for row in sorted(work.problems)]


class _Assembly:
    def __init__(self, columns: Mapping[str, pa.Array], rows: int, schema: Schema, time: str | None) -> None:
        self._columns, self._rows, self._schema, self._time = columns, rows, schema, time
        self.bad = np.zeros(rows, np.bool_)
        self.problems: dict[int, Problem] = {}

    def chunk(self) -> RawChunk:
        schema = self._schema
        label = [self._label(part) for part in schema.labels]
        dense = np.empty((self._rows, len(schema.dense)), np.float64)
        for at, number in enumerate(schema.dense):
            dense[:, at] = self._number(number)
        sparse = [self._keys(feature) for feature in schema.sparse]
        weight, group, time = self._weight(), self._group(), self._times()
        numbers = np.stack(label, axis=1) if label else np.zeros((self._rows, 0), np.float32)
        return RawChunk(self._rows, numbers, dense, sparse, weight, group, time)

    def _reject(self, bad: np.ndarray, reason: str, column: str, say: Callable[[Any], str]) -> None:
        for row in np.flatnonzero(bad & ~self.bad).tolist():
            value = self._columns[column][row].as_py()
            self.problems[row] = Problem(row, reason, f"column {column!r}: {say(value)}")
        self.bad |= bad

    def _label(self, label: Label) -> np.ndarray:
        values, bad = labels.label_values(label, self._columns[label.source])
        self._reject(bad, "label", label.source, lambda value: labels.problem(label, value))
        return values

    def _number(self, dense: Dense) -> np.ndarray:
        whole = dense.raw == "int"
        values, bad = numbers_of(self._columns[dense.source], dense.source, whole)
        wanted, reason = ("an integer", "integer") if whole else ("a finite number", "number")
        self._reject(bad, reason, dense.source, lambda value: f"{value!r} is not {wanted}")
        return values

    def _keys(self, feature: Sparse) -> Keys:
        keep_texts = isinstance(feature.encoder, VocabEncoder)
        parsed = bags.feature_keys(feature, self._columns[feature.source], keep_texts)
        reason = _REASONS[feature.raw]
        self._reject(parsed.bad, reason, feature.source, lambda value: bags.problem(feature, value))
        encoder = feature.encoder
        if isinstance(encoder, IdentityEncoder):
            outside = outside_identity(feature, encoder, folded(feature, parsed.keys))
            wanted = f"in {encoder.values}, the {_taken(encoder)} of table {feature.table_name!r}"
            self._reject(outside, "range", feature.source, lambda value: f"{value!r} is not {wanted}")
        return parsed.keys

    def _weight(self) -> np.ndarray | None:
        if (name := self._schema.weight) is None:
            return None
        values, bad = numbers_of(self._columns[name], name)
        bad |= ~(values >= 0)
        self._reject(bad, "weight", name, lambda value: f"weight {value!r} is not a number of 0 or above")
        return values.astype(np.float32)

    def _group(self) -> np.ndarray | None:
        return None if self._schema.group is None else group_keys(self._columns[self._schema.group])

    def _times(self) -> np.ndarray | None:
        if self._time is None:
            return None
        values, bad = times_of(self._columns[self._time], self._time)
        self._reject(bad, "time", self._time, lambda value: f"time {value!r} is neither a number nor a timestamp")
        return values


def outside_identity(feature: Sparse, encoder: IdentityEncoder, keys: Keys) -> np.ndarray:
    """Rows (bool [rows]) with a key outside the table, or without a value where the encoder has no id for that."""
    outside = np.zeros(len(keys.keys), np.bool_)
    if encoder.outside is None:
        outside = outside_range(encoder, keys.keys.astype(np.int64, copy=False))
    if keys.offsets is None:
        missing = np.zeros(len(outside), np.bool_) if keys.missing is None else keys.missing
        return (outside & ~missing) | (missing & (encoder.missing is None))
    rows = np.zeros(len(keys.offsets) - 1, np.bool_)
    rows[np.searchsorted(keys.offsets, np.flatnonzero(outside), side="right") - 1] = True
    if feature.hotness is not None and encoder.missing is None:
        rows |= np.diff(keys.offsets) == 0
    return rows


def _taken(encoder: IdentityEncoder) -> str:
    return "values" if encoder.lowest else "ids"


def group_keys(array: pa.Array) -> np.ndarray:
    """int64 keys of a group column: integers (also as texts) are their own key, other texts their XXH64.

    A missing group has the key of the empty text.
    """
    texts = is_text(array.type)
    found = scalar_keys("int", array, "group")
    if texts:
        plain = plain_texts(array)
        hashed = found.bad | found.missing
        if hashed.any():
            hashes = xxh64(*text_buffers(pc.fill_null(plain, ""))).view(np.int64)
            return np.where(hashed, hashes, found.keys)
    elif found.missing.any():
        empty = xxh64(*text_buffers(pa.array([""]))).view(np.int64)
        return np.where(found.missing, empty, found.keys)
    return found.keys


def times_of(array: pa.Array, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Times to order rows by, and a mask of bad ones: int64 where all are integers, else float64.

    Dates, timestamps and texts of them are microseconds since 1970 (UTC); other numbers stay as they are.
    """
    array = as_arrow(array)
    kind = array.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _microseconds(array.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False))
    if is_text(kind):
        texts = plain_texts(array)
        present = texts.filter(pc.not_equal(texts, ""))
        if len(present) and numbers_of(present.slice(0, 1), column)[1][0]:
            return _text_times(texts)
    if is_text(kind) or pa.types.is_integer(kind):
        found = scalar_keys("int", array, column)
        if not (found.bad & ~found.missing).any():
            return found.keys, found.missing
    values, bad = numbers_of(array, column)
    return values, bad | np.isnan(values)


def _text_times(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    try:
        return _microseconds(pc.if_else(pc.equal(texts, ""), None, texts).cast(pa.timestamp("us")))
    except pa.ArrowInvalid:
        pieces = [_one_time(text) for text in texts.to_pylist()]
        return _microseconds(pa.array(pieces, pa.timestamp("us")))


def _one_time(text: str | None) -> Any:
    try:
        return pa.scalar(text).cast(pa.timestamp("us")).as_py() if text else None
    except pa.ArrowInvalid:
        return None


def _microseconds(times: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    missing = np.array(times.is_null())
    return pc.fill_null(times.cast(pa.int64()), 0).to_numpy(), missing
