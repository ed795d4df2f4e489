"""The same, record by record with `struct`."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_BAD_SUM, _TORN, _CUT, _BAD_LENGTH = 1, 2, 3, 4
_MOST_BYTES = 1 << 26


def _counts(data: bytes, at: int, limit: int, words: int, key_size: int, slots: int) -> tuple[int, list[int]]:
    found: list[int] = []
    at += 4 * words
    for _ in range(slots):
        if at + 4 > limit:
            return -1, found
        (count,) = struct.unpack_from("<i", data, at)
        if count < 0 or count * key_size > _MOST_BYTES:
            return -2, found
        found.append(count)
        at += 4 + count * key_size
    return (at if at <= limit else -1), found


def scan(
    data: Array,
    begin: int,
    words: int,
    key_size: int,
    checked: bool,
    final: bool,
    starts: Array,
    lengths: Array,
    states: Array,
) -> tuple[int, int, int]:
    text, at, slots = data.tobytes(), begin, lengths.shape[1]
    for record in range(len(starts)):
        if not checked:
            end, counts = _counts(text, at, len(text), words, key_size, slots)
            if end < 0:
                return record, at, _CUT if end == -1 else _BAD_LENGTH
            starts[record], lengths[record] = at, counts
            at = end
            continue
        if at + 4 > len(text):
            return record, at, _CUT
        (length,) = struct.unpack_from("<i", text, at)
        first, last = at + 4, at + 4 + length
        sane = 4 * (words + slots) <= length <= _MOST_BYTES
        beyond = sane and last >= len(text)
        if beyond and not final:
            return record, at, _CUT
        sane = sane and not beyond
        starts[record] = first
        if sane and sum(text[first:last]) % 256 == text[last]:
            end, counts = _counts(text, first, last, words, key_size, slots)
            lengths[record, : len(counts)] = counts
            states[record] = 0 if end == last else _TORN
            at = last + 1
            continue
        end, _ = _counts(text, first, len(text) - 1, words, key_size, slots)
        found = end >= 0 and sum(text[first:end]) % 256 == text[end]
        if not found and not sane:
            return record, at, _CUT if beyond else _BAD_LENGTH
        states[record] = _TORN if found and end != last else _BAD_SUM
        at = (end if found else last) + 1
    return len(starts), at, 0


def unpack(
    data: Array, starts: Array, lengths: Array, key_size: int, numbers: Array, places: Array, keys: Array
) -> None:
    text, kind = data.tobytes(), "I" if key_size == 4 else "q"
    for record, start in enumerate(starts.tolist()):
        numbers[record] = np.frombuffer(text, "<f4", numbers.shape[1], start)
        at = start + 4 * numbers.shape[1]
        for slot, count in enumerate(lengths[record].tolist()):
            found = struct.unpack_from(f"<{count}{kind}", text, at + 4)
            keys[places[slot] : places[slot] + count] = found
            places[slot] += count
            at += 4 + count * key_size


def pack(numbers: Array, keys: Array, firsts: Array, offsets: Array, key_size: int, checked: bool, out: Array) -> None:
    made, kind = b"", "I" if key_size == 4 else "q"
    for row in range(len(numbers)):
        record = numbers[row].astype("<f4").tobytes()
        for slot, ends in enumerate(offsets):
            chosen = keys[firsts[slot] + ends[row] : firsts[slot] + ends[row + 1]].tolist()
            record += struct.pack(f"<i{len(chosen)}{kind}", len(chosen), *chosen)
        if checked:
            record = struct.pack("<i", len(record)) + record + bytes([sum(record) % 256])
        made += record
    out[:] = np.frombuffer(made, np.uint8)
