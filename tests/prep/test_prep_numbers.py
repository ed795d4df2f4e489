"""Numbers and labels from texts and numbers, alike in every container."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.errors import DataError
from lanner.prep.bags import require_good
from lanner.prep.labels import label_values, problem
from lanner.prep.numbers import numbers_of, require_numbers
from lanner.schema import Label, Sparse

number_texts = st.text("0123456789.eE+-naif_ ", max_size=8) | st.floats().map(str) | st.integers().map(str)


@given(st.lists(st.none() | number_texts, max_size=20), st.booleans())
def test_texts_are_parsed_alike_in_every_container(texts: list[str | None], whole: bool) -> None:
    numbers, bad = numbers_of(texts, "c", whole)
    for values in (pa.array(texts, pa.string()), pa.array(texts, pa.string()).dictionary_encode(), texts * 64):
        again, again_bad = numbers_of(values, "c", whole)
        np.testing.assert_array_equal(again[: len(texts)], numbers)
        np.testing.assert_array_equal(again_bad[: len(texts)], bad)


def test_what_is_a_number() -> None:
    good = {"1": 1.0, "-2.5": -2.5, "1e3": 1000.0, ".5": 0.5, "+3": 3.0, "3000000000": 3e9}
    numbers, bad = numbers_of(list(good), "c")
    assert numbers.tolist() == list(good.values()) and not bad.any()
    for text in ("x", " 1", "1_0", "inf", "-Infinity", "1e999", "0x1", "١", "1,5"):
        for values in ([text], pa.array([text])):
            assert numbers_of(values, "c")[1].tolist() == [True], text
    for missing in (None, "", "nan", float("nan")):
        numbers, bad = numbers_of([missing], "c")
        assert np.isnan(numbers).all() and not bad.any()


@pytest.mark.parametrize("values", [[1, 2.5, None], np.array([1, 2.5, np.nan]), pa.array([1, 2.5, None])])
def test_numbers_pass(values: Any) -> None:
    np.testing.assert_array_equal(numbers_of(values, "c")[0], [1, 2.5, np.nan])
    assert numbers_of(values, "c", whole=True)[1].tolist() == [False, True, False]


def test_large_integers_do_not_wrap() -> None:
    for values in ([3000000000, "2147483648"], ["3000000000", "2147483648"], pa.array([3000000000, 2147483648])):
        assert numbers_of(values, "c", whole=True)[0].tolist() == [3e9, 2147483648.0]
    assert numbers_of([10**400], "c")[1].tolist() == [True]


def test_errors_name_column_row_and_value() -> None:
    with pytest.raises(DataError, match="column 'c', row 1: 'x' is not a finite number"):
        require_numbers(pa.array(["1", "x"]), "c")
    with pytest.raises(DataError, match=r"column 'c', row 0: 2.5 is not an integer"):
        require_numbers([2.5], "c", whole=True)
    with pytest.raises(DataError, match="column 'c' is timestamp"):
        numbers_of(pa.array([0], pa.timestamp("s")), "c")


def labels(label: Label, values: Any) -> list[float | str]:
    found, bad = label_values(label, values)
    assert found.dtype == np.float32
    return ["bad" if wrong else round(float(value), 4) for value, wrong in zip(found, bad, strict=True)]


RAW = ["0", "1", "", "false", "2", "-1", "0.3", None]


def test_labels_are_0_or_1_and_nothing_else() -> None:
    for values in (RAW, pa.array(RAW)):
        assert labels(Label(name="y"), values) == [0.0, 1.0, *["bad"] * 6]
    assert labels(Label(name="y"), [0, 1, True, False, 1.0, 2, None]) == [0, 1, 1, 0, 1, "bad", "bad"]
    assert labels(Label(name="y"), pa.array([True, False, None])) == [1, 0, "bad"]


def test_soft_labels_are_taken_where_the_schema_says_so() -> None:
    assert labels(Label(name="y", soft=True), RAW) == [0, 1, "bad", "bad", "bad", "bad", 0.3, "bad"]


def test_labels_by_text() -> None:
    label = Label(name="y", positive=(">50K", ">50K."), negative=("<=50K",))
    for values in ([">50K", "<=50K", ">50K.", "", "50K", None], pa.array([">50K", "<=50K", ">50K.", "", "50K", None])):
        assert labels(label, values) == [1, 0, 1, "bad", "bad", "bad"]
    assert labels(Label(name="y", positive=("2",), negative=("1",)), pa.array([1, 2, 3])) == [0, 1, "bad"]
    assert "'50K' is not one of '>50K', '>50K.', '<=50K'" in problem(label, "50K")


def test_labels_by_threshold_regression_and_class() -> None:
    assert labels(Label(name="y", at_least=4), ["3.5", "4", "5", "", "x"]) == [0, 1, 1, "bad", "bad"]
    assert labels(Label(name="y", task="regression"), ["-3.5", "1e300", "inf", ""]) == [-3.5, "bad", "bad", "bad"]
    assert labels(Label(name="y", task="multiclass"), ["0", "7", "-1", "1.5", ""]) == [0, 7, "bad", "bad", "bad"]


@pytest.mark.parametrize("values", [[3.5], np.array([3.5]), [np.float64(3.5)], pa.array([3.5]), np.array([3.5], "f4")])
def test_bad_numbers_are_shown_as_people_write_them(values: Any) -> None:
    with pytest.raises(DataError, match=r"column 'I1', row 0: 3\.5 is not an integer$"):
        require_numbers(values, "I1", whole=True)
    with pytest.raises(DataError, match=r"column 'C1', row 0: 3\.5 "):
        require_good(Sparse(name="C1", raw="int"), values)
