"""Delimited text (CSV) split into fields, with the line of every record, and its columns as Arrow-like texts.

Quotes follow RFC 4180: a field that begins with a quote ends with one, holds delimiters and line ends as they are,
and "" for a quote. A quote inside an unquoted field is a character like others. Empty lines are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lanner.kernels.delimited import cpu

GOOD, FIELDS, QUOTES = cpu.GOOD, cpu.FIELDS, cpu.QUOTES


@dataclass(slots=True)
class Records:
    """n records of `text`, and where the wanted columns lie in them.

    `begins`, `ends` (uint32 [wanted, n]) bound the fields, without their quotes; `escaped` (bool, the same shape)
    marks those that hold doubled quotes. `fields` (int64 [n]) is how many fields a record has, `status` (int8 [n])
    GOOD, FIELDS (their number is wrong) or QUOTES (text after a closing quote). `lines` (int64 [n]) counts the lines
    before each record, `bounds` (uint32 [2, n]) its bytes without the line end. The first `consumed` bytes, which
    are `line_count` lines, are whole records; what follows is a record still open in quotes.
    """

    text: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    escaped: np.ndarray
    fields: np.ndarray
    status: np.ndarray
    lines: np.ndarray
    bounds: np.ndarray
    expected: int
    consumed: int
    line_count: int

    def __len__(self) -> int:
        return len(self.lines)

    def raw(self, record: int) -> bytes:
        """The bytes of one record."""
        begin, end = (int(edge) for edge in self.bounds[:, record])
        return self.text[begin:end].tobytes()


def split(text: np.ndarray, fields: int, wanted: Sequence[int], delimiter: str = ",", strip: bool = False) -> Records:
    """Split `text` (uint8, below 4 GiB, ending in a newline) into records of `fields` fields.

    `wanted` are the numbers of the columns asked for; `strip` drops blanks around fields.
    """
    most = int(np.count_nonzero(text == ord("\n")))
    slots = np.full(fields, -1, np.int64)
    slots[list(wanted)] = np.arange(len(wanted))
    shape = (len(wanted), most)
    begins, ends, escaped = np.zeros(shape, np.uint32), np.zeros(shape, np.uint32), np.zeros(shape, np.bool_)
    found, lines, status = np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.int8)
    bounds = np.zeros((2, most), np.uint32)
    places = (begins, ends, escaped, found, status, lines, bounds)
    count, consumed, line_count = cpu.split(text, ord(delimiter), strip, slots, *places)
    cut = (begins[:, :count], ends[:, :count], escaped[:, :count], found[:count], status[:count], lines[:count])
    return Records(text, *cut, bounds[:, :count], fields, consumed, line_count)


def column(records: Records, slot: int, null: Sequence[bytes] = ()) -> tuple[np.ndarray, np.ndarray]:
    """The texts of wanted column `slot`, end to end: bytes (uint8) and offsets (int32 [n + 1]).

    Fields equal to one of `null` come out empty.
    """
    offsets = np.zeros(len(records) + 1, np.int32)
    nulls = np.frombuffer(b"".join(null) or b"\0", np.uint8)
    null_offsets = np.concatenate([[0], np.cumsum([len(text) for text in null])]).astype(np.int64)
    place = (records.text, records.begins[slot], records.ends[slot], records.escaped[slot])
    cpu.measure(*place, nulls, null_offsets, offsets)
    data = np.empty(max(int(offsets[-1]), 1), np.uint8)
    cpu.gather(*place, offsets, data)
    return data, offsets
