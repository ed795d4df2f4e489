"""Encoding: single requests equal chunks, ids lie in their tables, errors name the column and the value."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.errors import DataError, IdRangeError, SchemaError
from lanner.prep.assemble import assemble
from lanner.prep.chunk import RawChunk
from lanner.prep.counting import TableCounter
from lanner.prep.encoder import Encoded, Encoder, id_dtype, table_rows
from lanner.prep.vocabulary import Vocabulary
from lanner.schema import IdentityEncoder, Schema, Sparse, VocabEncoder

SCHEMA = Schema.parse(
    {
        "labels": [{"name": "y"}],
        "dense": [
            {"name": "age", "raw": "int", "transform": "log1p_clip0"},
            {"name": "price", "fill": None, "transform": "standard", "parameters": {"mean": 1.0, "std": 2.0}},
        ],
        "sparse": [
            {"name": "user", "raw": "int", "encoder": {"kind": "vocab", "min_count": 1, "unknown_buckets": 2}},
            {"name": "site", "raw": "hex", "encoder": {"kind": "vocab", "min_count": 1}},
            {"name": "word", "encoder": {"kind": "hash", "size": 50}},
            {"name": "day", "raw": "int", "encoder": {"kind": "identity", "size": 8, "missing": 7}},
            {"name": "item", "table": "items", "encoder": {"kind": "vocab", "min_count": 1}},
            {
                "name": "history",
                "table": "items",
                "encoder": {"kind": "vocab", "min_count": 1},
                "hotness": None,
                "max_hotness": 3,
                "separator": "|",
            },
            {"name": "pair", "raw": "int", "encoder": {"kind": "hash", "size": 9}, "hotness": 2, "separator": " "},
        ],
    }
)
COLUMNS: dict[str, list[str | None]] = {
    "y": ["1", "0", "1"],
    "age": ["3", "", "-2"],
    "price": ["1.5", None, "-4"],
    "user": ["7", "8", "7"],
    "site": ["ff", "", "0a"],
    "word": ["x", "", "é"],
    "day": ["0", "", "6"],
    "item": ["a", "b", None],
    "history": ["a|b|a|b", "", "b"],
    "pair": ["1 2", "", "3 3"],
}


def as_chunk(columns: dict[str, list[str | None]]) -> RawChunk:
    arrays = {name: pa.array(values, pa.string()) for name, values in columns.items()}
    chunk, problems = assemble(arrays, len(columns["y"]), SCHEMA)
    assert not problems
    return chunk


@cache
def fitted() -> Encoder:
    chunk = as_chunk(COLUMNS)
    counters: dict[str, TableCounter] = {}
    for feature, keys in zip(SCHEMA.sparse, chunk.sparse, strict=True):
        if isinstance(feature.encoder, VocabEncoder):
            counters.setdefault(feature.table_name, TableCounter(feature.raw)).add(keys)
    encoders = {feature.table_name: feature.encoder for feature in SCHEMA.sparse}
    words = {name: Vocabulary.fit(counter, encoders[name]) for name, counter in counters.items()}  # type: ignore[arg-type]
    return Encoder(SCHEMA, words)


def raw_features(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: values for name, values in columns.items() if name != "y"}


def assert_same(left: Encoded, right: Encoded) -> None:
    np.testing.assert_array_equal(left.dense, right.dense)
    for a, b in zip(left.ids, right.ids, strict=True):
        assert a.values.dtype == b.values.dtype
        np.testing.assert_array_equal(a.values, b.values)
        np.testing.assert_array_equal(a.offsets, b.offsets)
        assert (a.missing, a.unknown) == (b.missing, b.unknown)


def test_known_answers() -> None:
    encoded = fitted().encode_chunk(as_chunk(COLUMNS))
    user, site, word, day, item, history, pair = encoded.ids
    assert encoded.labels.tolist() == [[1], [0], [1]]
    np.testing.assert_allclose(encoded.dense, [[np.log(4), 0.25], [0, 0], [0, -2.5]], rtol=1e-6)
    assert user.values.tolist() == [3, 4, 3]
    assert site.values.tolist() == [2, 0, 1]  # equal counts: 0a before ff
    assert word.values[1] == 0 and 1 <= word.values[0] <= 50
    assert day.values.tolist() == [0, 7, 6]
    assert item.values.tolist() == [2, 1, 0]  # the bags b, a, b and b count too
    assert history.values.tolist() == [1, 2, 1, 1] and history.offsets is not None
    assert history.offsets.tolist() == [0, 3, 3, 4]
    assert pair.offsets is not None and pair.offsets.tolist() == [0, 2, 4, 6]
    assert pair.values[2:4].tolist() == [0, 0] and pair.values[4] == pair.values[5]
    assert [column.missing for column in encoded.ids] == [0, 1, 1, 1, 1, 1, 1]
    assert [column.unknown for column in encoded.ids] == [0] * 7


def numbers(low: int, high: int) -> st.SearchStrategy[str | None]:
    return st.none() | st.just("") | st.integers(low, high).map(str)


rows = st.fixed_dictionaries(
    {
        "age": numbers(-5, 10**10),
        "price": st.none() | st.floats(-1e9, 1e9).map(str),
        "user": numbers(-(2**63), 2**63 - 1) | numbers(5, 9),
        "site": st.none() | st.integers(0, 2**32 - 1).map("{:x}".format) | st.sampled_from(["ff", "0A", ""]),
        "word": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
        "day": numbers(0, 7),
        "item": st.none() | st.sampled_from(["a", "b", "c", ""]),
        "history": st.none() | st.text("abc|", max_size=9),
        "pair": st.sampled_from([None, "", "1 2", "-5 7"]),
    }
)


@given(st.lists(rows, min_size=1, max_size=6))
def test_requests_equal_chunks_in_every_container(table: list[dict[str, str | None]]) -> None:
    encoder = fitted()
    columns = {name: [row[name] for row in table] for name in table[0]}
    expected = encoder.encode_chunk(as_chunk({"y": ["1"] * len(table), **columns}))
    assert_same(encoder.encode(columns), expected)
    assert_same(encoder.encode({name: pa.array(v, pa.string()) for name, v in columns.items()}), expected)
    assert_same(encoder.encode({name: np.array(v, object) for name, v in columns.items()}), expected)
    for at, row in enumerate(table):
        alone = encoder.encode({name: [value] for name, value in row.items()})
        np.testing.assert_array_equal(alone.dense[0], expected.dense[at])
        for column, whole in zip(alone.ids, expected.ids, strict=True):
            own = slice(at, at + 1) if whole.offsets is None else slice(*whole.offsets[at : at + 2])
            np.testing.assert_array_equal(column.values, whole.values[own])


def test_texts_and_numbers_of_a_request_are_the_same() -> None:
    encoder = fitted()
    texts = {"age": ["3"], "user": ["7"], "site": ["ff"], "day": ["6"], "history": ["a|b"], "pair": ["1 2"]}
    numbers = {"age": [3], "user": [7], "site": [255], "day": [6], "history": [["a", "b"]], "pair": [[1, 2]]}
    arrays = {
        name: np.array(values) if name in ("age", "user", "site", "day") else values for name, values in numbers.items()
    }
    assert_same(encoder.encode(texts), encoder.encode(numbers))
    assert_same(encoder.encode(texts), encoder.encode(arrays))


def test_a_column_left_out_is_missing_or_an_error_as_asked() -> None:
    encoder = fitted()
    full = raw_features(COLUMNS)
    explicit: dict[str, Any] = {**full, "user": [None] * 3, "age": [None] * 3, "history": [None] * 3, "pair": [""] * 3}
    without = {name: v for name, v in full.items() if name not in ("user", "age", "history", "pair")}
    assert_same(encoder.encode(without), encoder.encode(explicit))
    with pytest.raises(DataError, match="missing columns age, user; unexpected columns foo"):
        encoder.encode({**{n: v for n, v in full.items() if n not in ("age", "user")}, "foo": [1]}, False)
    assert_same(encoder.encode(COLUMNS), encoder.encode(full))  # labels may be there


def test_no_rows_at_all() -> None:
    encoded = fitted().encode({name: [] for name in raw_features(COLUMNS)})
    assert encoded.rows == 0 and encoded.dense.shape == (0, 2)
    assert all(len(column.values) == 0 for column in encoded.ids)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"site": ["ff", "zz"]}, "column 'site', row 1: 'zz' is not 1 to 8 hexadecimal digits"),
        ({"user": ["1", "3.7"]}, "column 'user', row 1: '3.7' is not an integer"),
        ({"user": [1, 2**63]}, "column 'user', row 1: 9223372036854775808"),
        ({"age": ["1", "2.5"]}, "column 'age', row 1: '2.5' is not an integer"),
        ({"price": ["1", "inf"]}, "column 'price', row 1: 'inf' is not a finite number"),
        ({"day": ["1", "9"]}, "column 'day', row 1: 9 is outside 0..7"),
        ({"day": [0, -1]}, "column 'day', row 1: -1 is outside 0..7"),
        ({"pair": ["1 2", "1 2 3"]}, "column 'pair', row 1: '1 2 3' is not 2 values"),
        ({"user": [1], "day": [1, 2]}, "column 'day' has 2 rows, column 'user' has 1"),
    ],
)
def test_bad_values_are_named(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        fitted().encode(columns)


def test_unseen_values_are_counted_as_unknown() -> None:
    encoded = fitted().encode({"user": [7, 99, 100], "site": ["ff", "1", ""], "history": ["a|z", "z", ""]})
    unknown = {feature.name: column.unknown for feature, column in zip(SCHEMA.sparse, encoded.ids, strict=True)}
    assert (unknown["user"], unknown["site"], unknown["history"]) == (2, 1, 2)
    assert all(1 <= encoded.ids[0].values[row] <= 2 for row in (1, 2))


def test_a_missing_value_needs_an_id_under_identity() -> None:
    schema = Schema.parse({"sparse": [{"name": "d", "raw": "int", "encoder": {"kind": "identity", "size": 3}}]})
    encoder = Encoder(schema, {})
    assert encoder.encode({"d": [0, 2]}).ids[0].values.tolist() == [0, 2]
    with pytest.raises(DataError, match="column 'd', row 1: missing"):
        encoder.encode({"d": [0, None]})
    two = Schema.parse(
        {
            "dense": [{"name": "price"}],
            "sparse": [{"name": "d", "raw": "int", "encoder": {"kind": "identity", "size": 3}}],
        }
    )
    with pytest.raises(DataError, match=r"or set encoder\.missing of feature 'd' in the schema"):
        Encoder(two, {}).encode({"price": [1.0]})
    with pytest.raises(IdRangeError, match=r"'d', row 0: 3 is outside 0\.\.2"):
        encoder.encode({"d": [3]})


def test_loaded_from_a_directory(tmp_path: Path) -> None:
    encoder = fitted()
    tables = [
        table.model_copy(
            update={"vocabulary": f"vocab/{table.name}.parquet" if table.name in encoder.vocabularies else None}
        )
        for table in SCHEMA.tables
    ]
    for name, words in encoder.vocabularies.items():
        words.save(tmp_path / "vocab" / f"{name}.parquet")
    SCHEMA.model_copy(update={"tables": tuple(tables)}).save(tmp_path / "schema.yaml")
    columns = raw_features(COLUMNS)
    assert_same(Encoder.load(tmp_path).encode(columns), encoder.encode(columns))


def test_schema_and_vocabulary_must_fit_together() -> None:
    encoder = fitted()
    with pytest.raises(SchemaError, match="table 'user': its vocabulary is not fitted"):
        Encoder(SCHEMA, {})
    with pytest.raises(SchemaError, match="table 'user': vocabulary of hex values, the schema says int"):
        Encoder(SCHEMA, {**encoder.vocabularies, "user": encoder.vocabularies["site"]})
    plain = Vocabulary("int", np.array([7]), np.array([1]))
    with pytest.raises(SchemaError, match="table 'user': vocabulary with 0 unknown buckets, not 2"):
        Encoder(SCHEMA, {**encoder.vocabularies, "user": plain})
    small = Schema.parse({**SCHEMA.model_dump(), "tables": [{"name": "word", "rows": 20}]})
    with pytest.raises(SchemaError, match="table 'word': the schema says 20 rows, its encoder gives 51"):
        Encoder(small, encoder.vocabularies)
    with pytest.raises(SchemaError, match="missing id 3 is outside"):
        table_rows(Sparse(name="d", raw="int", encoder=IdentityEncoder(size=3, missing=3)))


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (1, "uint8"),
        (256, "uint8"),
        (257, "uint16"),
        (65536, "uint16"),
        (65537, "uint32"),
        (2**32, "uint32"),
        (2**32 + 1, "int64"),
    ],
)
def test_the_smallest_id_type(rows: int, kind: str) -> None:
    assert id_dtype(rows) == np.dtype(kind)
