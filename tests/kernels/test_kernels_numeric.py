"""The dense transforms and the moments against plain NumPy and exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.kernels.moments import add_moments
from lanner.kernels.moments import reference as exact
from lanner.kernels.numeric import CODES, Rules, count_missing, narrowed, reference, transform

finite = st.floats(allow_nan=False, allow_infinity=False)
cells = st.lists(st.floats() | st.integers(-5, 2000).map(float), min_size=1, max_size=30)


@pytest.mark.parametrize("name", CODES)
@given(cells, st.floats(allow_infinity=False), st.floats(-100, 100), st.floats(0.01, 100))
def test_transforms_equal_the_reference(name: str, values: list[float], fill: float, a: float, b: float) -> None:
    boundaries = np.array([-1.0, 0.0, 7.5, 100.0])
    numbers = (0.0, 4.0) if name == "bucketize" else (a, b)
    code, column = np.array([CODES[name]]), np.array(values)
    rules = Rules(code, np.array([fill]), np.array(numbers[:1]), np.array(numbers[1:]), boundaries)
    found = transform(rules, column.reshape(-1, 1)).ravel()
    expected = reference.transform(name, fill, column, *numbers, boundaries.tolist())
    np.testing.assert_allclose(found, expected, rtol=2e-7, atol=1e-7)


@given(st.lists(st.lists(st.floats(-1e100, 1e100) | st.just(np.nan), max_size=30), max_size=6))
def test_moments_keep_twice_the_precision(chunks: list[list[float]]) -> None:
    sums = np.zeros(4)
    count = sum(add_moments(np.array(chunk), sums) for chunk in chunks)
    expected_count, total, squares = exact.moments(value for chunk in chunks for value in chunk)
    assert count == expected_count
    magnitude = sum((abs(Fraction(x)) for chunk in chunks for x in chunk if np.isfinite(x)), Fraction())
    assert abs(Fraction(sums[0]) + Fraction(sums[1]) - total) <= magnitude * Fraction(2) ** -95
    tiny = Fraction(2) ** -900  # squares of denormals have no room for an error term
    assert abs(Fraction(sums[2]) + Fraction(sums[3]) - squares) <= squares * Fraction(2) ** -95 + tiny


@given(st.lists(st.floats() | st.floats(width=32) | st.integers(-5, 2000).map(float), min_size=1, max_size=12))
def test_narrowed_only_where_exact(values: list[float]) -> None:
    column = np.array(values).reshape(-1, 1)
    with np.errstate(over="ignore"):
        exact_in_32 = all(np.isnan(value) or float(np.float32(value)) == value for value in values)
    found = narrowed(column)
    assert found.dtype == (np.float32 if exact_in_32 else np.float64)
    np.testing.assert_array_equal(found, column)
    np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(column[column == 0]))
    assert count_missing(found).tolist() == [int(np.isnan(column).sum())]


@given(st.lists(st.floats(width=32), min_size=1, max_size=12))
def test_transforms_take_either_precision(values: list[float]) -> None:
    column = np.array(values).reshape(-1, 1)
    rules = Rules(np.array([CODES["log1p_clip0"]]), np.zeros(1), np.zeros(1), np.ones(1), np.zeros(0))
    np.testing.assert_array_equal(transform(rules, column.astype(np.float32)), transform(rules, column))
