"""The tokenizer against its plain-Python reference, on well-formed, broken and arbitrary lines."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lanner.errors import ConfigError
from lanner.kernels.tokenize import Layout, Tokens, padded, reference, tokenize

SMALL = Layout(numeric=2, categorical=2)

good_integer = st.one_of(st.just(""), st.integers(-(2**63), 2**63 - 1).map(str), st.integers(0, 999).map(str))
good_hex = st.one_of(st.just(""), st.text("0123456789abcdefABCDEF", min_size=1, max_size=8))
bad_value = st.sampled_from(
    ["-", "--1", "+1", "1.5", " 1", "1 ", "1e3", "9" * 19, "9" * 30, "-" + "9" * 19, "0x1f", "g", "123456789", "é"]
) | st.sampled_from(
    ["1234567g", "a\r", "\x00", "\x101234567", "-9223372036854775809", "9223372036854775808", '"1"', "nan", "123456"]
)
good_row = st.tuples(st.sampled_from(["0", "1"]), good_integer, good_integer, good_hex, good_hex).map("\t".join)
bad_row = st.lists(st.one_of(good_integer, good_hex, bad_value), min_size=1, max_size=7).map("\t".join)
lines = st.lists(st.one_of(good_row, bad_row, st.just("")), max_size=12)


def assert_same(found: Tokens, expected: Tokens) -> None:
    assert (found.rows, found.lines) == (expected.rows, expected.lines)
    assert found.errors == expected.errors
    for name in ("labels", "numbers", "number_missing", "keys", "key_missing"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


@settings(max_examples=300, deadline=None)
@given(lines, st.sampled_from(["\n", "\r\n"]), st.booleans())
@example(["1\t" + "\t" * 3], "\n", False)
@example(["1\t-9223372036854775808\t9223372036854775807\t0\tffffffff"], "\r\n", False)
@example(["1\t-0\t00000000000000000000001\tABCDEF\tabcdef"], "\n", True)
def test_equals_reference(rows: list[str], ending: str, final: bool) -> None:
    text = (ending.join(rows) + (ending if final else "")).encode()
    assert_same(tokenize(padded(text), SMALL), reference.tokenize(text, SMALL))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 2), st.integers(0, 2), st.booleans(), st.sampled_from("\t,|"))
def test_any_bytes_equal_reference(text: bytes, numeric: int, categorical: int, labelled: bool, delimiter: str) -> None:
    layout = Layout(numeric, max(categorical, int(numeric == 0)), labelled, delimiter=delimiter)
    assert_same(tokenize(padded(text), layout), reference.tokenize(text, layout))


@given(st.lists(st.text("01234567890.-e\t", max_size=22), max_size=8))
@settings(max_examples=300, deadline=None)
def test_soft_labels_equal_reference(labels: list[str]) -> None:
    layout = Layout(0, 1, soft=True)
    text = "".join(f"{label}\tff\n" for label in labels).encode()
    found, expected = tokenize(padded(text), layout), reference.tokenize(text, layout)
    assert found.errors == expected.errors
    np.testing.assert_allclose(found.labels, expected.labels, rtol=1e-7)


def test_float_numbers_mark_missing_by_nan() -> None:
    found = tokenize(padded(b"1\t\t-5\ta\t\n0\t3000000000\t7\t\tff\n"), SMALL, as_float=True)
    np.testing.assert_array_equal(found.numbers, [[np.nan, -5], [3e9, 7]])
    np.testing.assert_array_equal(found.keys, [[10, 0], [0, 255]])
    np.testing.assert_array_equal(found.key_missing, [[False, True], [True, False]])


def test_messages_name_column_value_and_expectation() -> None:
    layout = Layout(1, 1)
    text = b"2\t1\ta\n0\t1.5\ta\n0\t99999999999999999999\ta\n0\t1\txyz\n1\t1\t123456789\n0,1,a\n0\t1\ta\tb\n"
    errors = tokenize(padded(text), layout).errors
    assert [error.line for error in errors] == list(range(7))
    assert [error.reason for error in errors] == ["label", "integer", "range", "hex", "hex", "fields", "fields"]
    messages = [error.message(layout) for error in errors]
    assert messages[0] == "label is '2', expected 0 or 1"
    assert messages[1] == "I1 is '1.5', expected an integer or nothing"
    assert "I1 is '99999999999999999999', expected an integer of 64 bits" in messages[2]
    assert messages[3] == "C1 is 'xyz', expected 1 to 8 hexadecimal digits or nothing"
    assert messages[5].startswith("expected 3 fields, got 1")
    assert messages[6] == "expected 3 fields, got 4"


@pytest.mark.parametrize("delimiter", ["", "\n", "\r", "5", "a", "-", ".", "ab", "é"])
def test_delimiters_that_can_be_part_of_a_value_are_refused(delimiter: str) -> None:
    with pytest.raises(ConfigError, match="delimiter"):
        Layout(delimiter=delimiter)


def test_text_without_its_final_newline_is_refused() -> None:
    with pytest.raises(ValueError, match="newline"):
        tokenize(np.frombuffer(b"0\t1" + bytes(8), np.uint8), SMALL)


def test_real_logs_equal_reference(shared_data: Path) -> None:
    kaggle = b"".join(gzip.decompress((shared_data / "criteo_kaggle_10k.tsv.gz").read_bytes()).splitlines(True)[:1000])
    unlabelled = (shared_data / "criteo_kaggle_unlabelled_200.tsv").read_bytes()
    terabyte = (shared_data / "criteo_terabyte_300.tsv").read_bytes()
    for text, layout, rows in (
        (kaggle, Layout(), 1000),
        (terabyte, Layout(), 300),
        (unlabelled, Layout(labelled=False), 200),
    ):
        found = tokenize(padded(text), layout)
        assert (found.rows, found.errors) == (rows, [])
        assert_same(found, reference.tokenize(text, layout))
