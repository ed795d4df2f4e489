"""Raw values to keys: every container gives the same, and nothing is guessed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from lanner.errors import DataError
from lanner.prep.bags import feature_keys, require_good
from lanner.prep.keys import scalar_keys
from lanner.schema import Raw, Sparse


def plain(raw: Raw, values: Any) -> list[int | str | None]:
    found = scalar_keys(raw, values, "c")
    rows = zip(found.keys.tolist(), found.missing.tolist(), found.bad.tolist(), strict=True)
    return ["bad" if bad else None if missing else key for key, missing, bad in rows]


def hashed(text: str) -> int:
    return int(np.uint64(xxhash.xxh64_intdigest(text.encode())).view(np.int64))


def containers(texts: list[str | None]) -> list[Any]:
    array = pa.array(texts, pa.string())
    return [
        texts,
        np.array(texts, object),
        array,
        array.cast(pa.large_string()),
        array.cast(pa.string_view()),
        array.dictionary_encode(),
        pa.concat_arrays([pa.array([None, "zz"]), array])[2:],
        pa.chunked_array([array.slice(0, 1), array.slice(1)], pa.string()),
    ]


@given(st.lists(st.none() | st.text("0159afAFxg-", max_size=10)), st.sampled_from(["hex", "int", "string"]))
def test_the_container_does_not_matter(texts: list[str | None], raw: Raw) -> None:
    first, *others = [plain(raw, values) for values in containers(texts)]
    assert all(other == first for other in others)


def test_texts_are_hashed_and_empty_ones_missing() -> None:
    assert plain("string", ["a", "", None, "é"]) == [hashed("a"), None, None, hashed("é")]
    assert plain("string", [b"a", "b", np.nan]) == [hashed("a"), hashed("b"), None]
    assert plain("string", pa.array([b"a", None], pa.binary())) == [hashed("a"), None]


def test_numbers_are_keys_without_passing_through_floats() -> None:
    big = [9007199254740993, 9007199254740992, None, 5]
    for values in (big, pa.array(big), pa.array(big).dictionary_encode(), [str(v) if v else v for v in big]):
        assert plain("int", values) == big
        assert scalar_keys("int", values, "c").keys.dtype == np.int64


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int32(), pa.uint64()])
def test_integer_types_are_widened(kind: pa.DataType) -> None:
    assert plain("int", pa.array([1, None, 100], kind)) == [1, None, 100]
    assert plain("hex", pa.array([1, None, 100], kind)) == [1, None, 100]


def test_integers_beyond_the_kind_are_bad() -> None:
    assert plain("int", pa.array([2**63, 1], pa.uint64())) == ["bad", 1]
    assert plain("int", [2**63, -(2**63) - 1, -(2**63)]) == ["bad", "bad", -(2**63)]
    assert plain("hex", [2**32, 2**32 - 1, -1]) == ["bad", 2**32 - 1, "bad"]
    assert plain("hex", pa.array([-1, 2**32, 7])) == ["bad", "bad", 7]


@pytest.mark.parametrize(
    ("raw", "values", "message"),
    [
        ("int", [1, 3.7], "column 'c', row 1: 3.7"),
        ("int", [1, 3.0], "column 'c', row 1: 3.0"),
        ("int", np.array([np.nan, 2.0]), "column 'c', row 1: 2.0"),
        ("int", pa.array([None, 2.0]), "column 'c', row 1: 2.0"),
        ("string", ["a", 5], "column 'c', row 1: 5"),
        ("string", pa.array([5]), "column 'c' is int64"),
        ("int", pa.array([0], pa.timestamp("s")), "column 'c' is timestamp"),
        ("string", ["a", "\ud800"], "row 1.*not valid Unicode"),
        ("string", ["a", b"\xff"], "row 1.*not UTF-8"),
    ],
)
def test_wrong_types_are_refused_by_name(raw: Raw, values: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        scalar_keys(raw, values, "c")


def test_columns_without_any_value_have_every_type() -> None:
    for raw in ("hex", "int", "string"):
        for values in ([None, None], np.array([np.nan, np.nan]), pa.nulls(2), pa.array([None, None], pa.float64())):
            assert plain(raw, values) == [None, None]
        assert plain(raw, []) == []


def bag(**settings: Any) -> Sparse:
    return Sparse(**{"name": "g", "raw": "int", "hotness": None, "separator": "|", **settings})


@given(st.lists(st.none() | st.lists(st.none() | st.integers(-5, 99), max_size=6)), st.none() | st.integers(1, 4))
def test_bags_keep_their_last_present_elements(bags: list[list[int | None] | None], most: int | None) -> None:
    feature = bag(max_hotness=most)
    expected = [[v for v in row or [] if v is not None] for row in bags]
    expected = [row if most is None else row[-most:] for row in expected]
    texts = [None if row is None else "|".join("" if v is None else str(v) for v in row) for row in bags]
    array = pa.array(bags, pa.list_(pa.int64()))
    for values in (bags, array, array.cast(pa.large_list(pa.int32())), texts, pa.array(texts, pa.string())):
        found = feature_keys(feature, values)
        keys, offsets = found.keys.keys, found.keys.offsets
        assert offsets is not None and not found.bad.any()
        assert [keys[a:b].tolist() for a, b in pairwise(offsets)] == expected


def test_bags_of_fixed_length_and_bad_elements_are_named_by_row() -> None:
    feature = bag(hotness=2)
    assert feature_keys(feature, ["1|2", "3", "", "4|x", "5|6|7"]).bad.tolist() == [False, True, False, True, True]
    with pytest.raises(DataError, match="column 'g', row 1: '3' is not 2 values"):
        require_good(feature, ["1|2", "3"])
    square = np.arange(6).reshape(3, 2)
    for values in (square, pa.FixedSizeListArray.from_arrays(pa.array(range(6)), 2)):
        assert require_good(feature, values).keys.tolist() == list(range(6))


@pytest.mark.parametrize(
    ("feature", "values", "message"),
    [
        (bag(separator=None), ["1 2"], "no separator"),
        (bag(separator=None), pa.array(["1 2"]), "no separator"),
        (bag(), pa.array([1]), "is int64, expected lists"),
        (bag(), [[1], 5], "row 1: 5"),
    ],
)
def test_what_is_no_bag_is_refused(feature: Sparse, values: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"column 'g'.*{message}"):
        feature_keys(feature, values)


def test_dictionaries_in_another_order_give_the_same_keys() -> None:
    texts = ["b", "a", None, "c", "a"]
    expected = plain("string", texts)
    for order in (["a", "b", "c"], ["c", "b", "a", ""]):
        codes = [None if text is None else order.index(text) for text in texts]
        array = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(order))
        assert plain("string", array) == expected
        assert plain("string", pa.chunked_array([array, array.slice(1, 2)])) == expected + expected[1:3]
