"""Transforms by their formulas, finite everywhere; statistics independent of chunking."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.errors import DataError, SchemaError
from lanner.prep.statistics import DenseStatistics
from lanner.prep.transforms import Transforms, apply
from lanner.schema import Dense, Schema

PARAMETERS: dict[str, dict[str, Any]] = {
    "none": {},
    "log1p_clip0": {},
    "log_shift3_missing0": {},
    "log_minus_min_plus2": {"minimum": -1.0},
    "standard": {"mean": 2.0, "std": 4.0},
    "log1p_standard": {"mean": 1.0, "std": 0.5},
    "bucketize": {"boundaries": (-1.0, 0.0, 10.0)},
}
EDGES = [-3.0, -2.0, -1.0, 0.0, 1.0, 2147483647.0, 3000000000.0, math.nan]


def dense(transform: str, **settings: Any) -> Dense:
    return Dense(**{"name": "x", "transform": transform, "parameters": PARAMETERS[transform], **settings})


LOG3 = math.log(3)
EXPECTED = {
    "none": [-3, -2, -1, 0, 1, 2147483647.0, 3e9, 0],
    "log1p_clip0": [0, 0, 0, 0, math.log(2), 21.4876, 21.8219, 0],
    "log_shift3_missing0": [0, 0, math.log(2), LOG3, math.log(4), 21.4876, 21.8219, 0],
    "log_minus_min_plus2": [0, 0, math.log(2), LOG3, math.log(4), 21.4876, 21.8219, LOG3],
    "standard": [-1.25, -1, -0.75, -0.5, -0.25, 2147483645 / 4, 2999999998 / 4, -0.5],
    "log1p_standard": [-2, -2, -2, -2, (math.log(2) - 1) * 2, 2 * 20.4876, 2 * 20.8219, -2],
    "bucketize": [0, 0, 1, 2, 2, 3, 3, 2],
}


@pytest.mark.parametrize("transform", PARAMETERS)
def test_formulas_on_the_edges(transform: str) -> None:
    found = apply(dense(transform), np.array(EDGES))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.array(EXPECTED[transform], np.float32), rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize("transform", PARAMETERS)
@given(st.lists(st.floats(allow_infinity=False)), st.none() | st.floats(-1e9, 1e9))
def test_finite_for_every_finite_input(transform: str, values: list[float], fill: float | None) -> None:
    if transform == "log_shift3_missing0":
        fill = None
    assert np.isfinite(apply(dense(transform, fill=fill), np.array(values))).all()


@pytest.mark.parametrize("transform", PARAMETERS)
def test_missing_is_the_fill_before_or_zero_after(transform: str) -> None:
    missing = np.array([math.nan])
    assert apply(dense(transform, fill=None), missing).tolist() == [0.0]
    if transform != "log_shift3_missing0":
        assert apply(dense(transform, fill=7.0), missing) == apply(dense(transform), np.array([7.0]))


def test_columns_of_a_block_keep_their_own_rules() -> None:
    features = [dense(name, name=name) for name in PARAMETERS]
    block = np.array(EDGES).reshape(-1, 1).repeat(len(features), axis=1)
    found = Transforms(features)(block)
    for at, feature in enumerate(features):
        np.testing.assert_array_equal(found[:, at], apply(feature, np.array(EDGES)))
    assert Transforms([])(np.zeros((3, 0))).shape == (3, 0)


def test_infinite_values_are_refused_by_name() -> None:
    with pytest.raises(DataError, match="'raw', row 2: inf"):
        apply(Dense(name="x", column="raw"), np.array([0.0, 1.0, math.inf]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"transform": "standard", "parameters": {"mean": 0.0}}, "lacks its parameter 'std'"),
        ({"transform": "none", "parameters": {"mean": 0.0}}, "has no parameter 'mean'"),
        ({"transform": "bucketize"}, "lacks its parameter 'boundaries'"),
        ({"transform": "bucketize", "parameters": {"boundaries": (1.0, 1.0)}}, "do not ascend"),
        ({"transform": "bucketize", "parameters": {"boundaries": 1.0}}, "expected finite numbers"),
        ({"transform": "log_shift3_missing0", "fill": 5.0}, "no effect"),
    ],
)
def test_parameters_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=f"'x'.*{message}"):
        apply(Dense(name="x", **settings), np.zeros(1))


FITTED = Schema(
    dense=(
        Dense(name="a", transform="standard"),
        Dense(name="b", transform="log1p_standard", fill=None),
        Dense(name="c", transform="log_minus_min_plus2"),
        Dense(name="d", transform="log_minus_min_plus2", fill=None),
        Dense(name="e", transform="log1p_clip0"),
    )
)
blocks = st.lists(st.lists(st.tuples(*[st.floats(-1e6, 1e6) | st.just(math.nan)] * 5), max_size=8), max_size=5)


def as_block(rows: list[Any]) -> np.ndarray:
    return np.array(rows, np.float64).reshape(len(rows), 5)


@given(blocks)
def test_statistics_are_those_of_numpy_and_do_not_depend_on_chunks(chunks: list[list[Any]]) -> None:
    parts = [DenseStatistics(FITTED) for _ in chunks]
    merged, whole = DenseStatistics(FITTED), DenseStatistics(FITTED)
    for part, rows in zip(parts, chunks, strict=True):
        part.add(as_block(rows))
        merged.merge(DenseStatistics.restore(FITTED, part.state()))
    rows = as_block([row for chunk in chunks for row in chunk])
    whole.add(rows)
    fitted = whole.fit(FITTED)
    assert merged.fit(FITTED) == fitted
    a, b = np.nan_to_num(rows[:, 0]), np.log1p(np.maximum(rows[:, 1], 0))
    b = b[~np.isnan(b)]
    for values, feature in ((a, fitted.dense[0]), (b, fitted.dense[1])):
        expected = (values.mean(), values.std()) if len(values) else (0.0, 1.0)
        found = feature.parameters["mean"], feature.parameters["std"]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    seen = [*np.nan_to_num(rows[:, 2]), *rows[~np.isnan(rows[:, 3]), 3]]
    assert fitted.dense[2].parameters == fitted.dense[3].parameters == {"minimum": min(seen, default=0.0)}
    assert fitted.dense[4].parameters == {}


def test_parameters_given_in_the_schema_stay() -> None:
    given_mean = Schema(dense=(Dense(name="a", transform="standard", parameters={"mean": 5.0}),))
    statistics = DenseStatistics(given_mean)
    statistics.add(np.array([[1.0], [3.0]]))
    assert statistics.needed and statistics.fit(given_mean).dense[0].parameters == {"mean": 5.0, "std": 1.0}
    complete = statistics.fit(given_mean)
    assert not DenseStatistics(complete).needed


def test_a_constant_column_becomes_zero_and_huge_ones_are_refused() -> None:
    schema = Schema(dense=(Dense(name="a", transform="standard"),))
    constant, huge = DenseStatistics(schema), DenseStatistics(schema)
    constant.add(np.full((1000, 1), 0.1))
    feature = constant.fit(schema).dense[0]
    assert feature.parameters["std"] == 0.0
    assert apply(feature, np.array([0.1, 1.1])).tolist() == pytest.approx([0.0, 1.0])
    huge.add(np.array([[1e200], [-1e200]]))
    with pytest.raises(DataError, match=r"'a'.*too large"):
        huge.fit(schema)


def test_statistics_of_other_columns_are_refused() -> None:
    with pytest.raises(DataError, match="are of columns"):
        DenseStatistics.restore(FITTED, {"z": {}})
