"""The CSV splitter against a plain-Python reference, and against the csv module on well-formed text."""

import csv
import io

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lanner.kernels.delimited import FIELDS, GOOD, QUOTES, Records, column, reference, split


def as_bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


def texts(records: Records, slot: int, null: tuple[bytes, ...] = ()) -> list[str]:
    data, offsets = column(records, slot, null)
    return [data[offsets[i] : offsets[i + 1]].tobytes().decode() for i in range(len(records))]


@given(st.text('",\n\r a\tbé', max_size=40), st.booleans(), st.sampled_from(",\t;"))
def test_equal_to_the_reference(text: str, strip: bool, delimiter: str) -> None:
    text += "\n"
    try:
        expected = reference.records(text, delimiter, strip)
    except IndexError:
        assume(False)  # an open quote
    records = split(as_bytes(text), 3, [0, 2], delimiter, strip)
    assert records.lines.tolist() == [line for line, _, _ in expected]
    assert records.fields.tolist() == [len(fields) for _, fields, _ in expected]
    status = [QUOTES if not clean else GOOD if len(fields) == 3 else FIELDS for _, fields, clean in expected]
    assert records.status.tolist() == status
    assert (records.consumed, records.line_count) == (len(text.encode()), text.count("\n"))
    good = [row for row, state in enumerate(status) if state == GOOD]
    for slot, field in enumerate((0, 2)):
        assert [texts(records, slot)[row] for row in good] == [expected[row][1][field] for row in good]


@given(st.lists(st.tuples(*[st.text('"a,\n é', max_size=6)] * 3), max_size=10), st.sampled_from(["\n", "\r\n"]))
def test_reads_what_the_csv_module_writes(rows: list[tuple[str, ...]], line_end: str) -> None:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator=line_end, quoting=csv.QUOTE_ALL).writerows(rows)
    records = split(as_bytes(out.getvalue()), 3, [0, 1, 2])
    assert (records.status == GOOD).all()
    assert list(zip(*(texts(records, slot) for slot in range(3)), strict=True)) == rows


def test_an_open_quote_is_left_for_the_next_block() -> None:
    records = split(as_bytes('a,b\n"c,\nd\n'), 2, [0])
    assert (len(records), records.consumed, records.line_count) == (1, 4, 1)


def test_records_know_their_line_and_their_bytes() -> None:
    records = split(as_bytes('\n"a\nb",1\r\n\n c ,2\n'), 2, [0, 1], strip=True)
    assert records.lines.tolist() == [1, 4]
    assert [records.raw(row) for row in range(2)] == [b'"a\nb",1', b" c ,2"]


@pytest.mark.parametrize("written", ["?", '"?"'])
def test_null_texts_come_out_empty(written: str) -> None:
    records = split(as_bytes(f"{written},x\nNA,NAN\n"), 2, [0, 1])
    assert texts(records, 0, (b"?", b"NA")) == ["", ""]
    assert texts(records, 1, (b"?", b"NA")) == ["x", "NAN"]
