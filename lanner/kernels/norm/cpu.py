"""The loops over Norm records in Numba."""

from __future__ import annotations

import numba as nb
import numpy as np

_BAD_SUM, _TORN, _CUT, _BAD_LENGTH = 1, 2, 3, 4
_MOST_BYTES = 1 << 26  # a longer record is taken for a damaged length


@nb.njit(nogil=True, cache=True)
def _int32(data: np.ndarray, at: int) -> int:
    value = np.int64(data[at]) | np.int64(data[at + 1]) << 8 | np.int64(data[at + 2]) << 16
    value |= np.int64(data[at + 3]) << 24
    return int(value - (value >> 31 << 32))


@nb.njit(nogil=True, cache=True)
def _walk(data: np.ndarray, at: int, limit: int, words: int, key_size: int, lengths: np.ndarray) -> int:
    """Where the record that starts at `at` ends; -1 where that is beyond `limit`, -2 where a count is none."""
    at += 4 * words
    for slot in range(lengths.shape[0]):
        if at + 4 > limit:
            return -1
        count = _int32(data, at)
        if count < 0 or count * key_size > _MOST_BYTES:
            return -2
        lengths[slot] = count
        at += 4 + count * key_size
    return at if at <= limit else -1


@nb.njit(nogil=True, cache=True)
def _sum(data: np.ndarray, begin: int, end: int) -> int:
    total = np.uint8(0)
    for place in range(begin, end):
        total += data[place]
    return int(np.uint8(total))


@nb.njit(nogil=True, cache=True)
def _by_counts(data: np.ndarray, first: int, words: int, key_size: int, lengths: np.ndarray) -> int:
    """Where the counts say that the record at `first` ends, if the byte there is its sum; else -1."""
    end = _walk(data, first, data.shape[0] - 1, words, key_size, lengths)
    return end if end >= 0 and _sum(data, first, end) == data[end] else -1


@nb.njit(nogil=True, cache=True)
def scan(
    data: np.ndarray,
    begin: int,
    words: int,
    key_size: int,
    checked: bool,
    final: bool,
    starts: np.ndarray,
    lengths: np.ndarray,
    states: np.ndarray,
) -> tuple[int, int, int]:
    at, size = begin, data.shape[0]
    least = 4 * (words + lengths.shape[1])
    for record in range(starts.shape[0]):
        if not checked:
            end = _walk(data, at, size, words, key_size, lengths[record])
            if end < 0:
                return record, at, _CUT if end == -1 else _BAD_LENGTH
            starts[record] = at
            at = end
            continue
        if at + 4 > size:
            return record, at, _CUT
        length = _int32(data, at)
        first, last = at + 4, at + 4 + length
        sane = length >= least and length <= _MOST_BYTES
        beyond = sane and last >= size
        if beyond and not final:
            return record, at, _CUT
        sane = sane and not beyond
        starts[record] = first
        if sane and _sum(data, first, last) == data[last]:
            if _walk(data, first, last, words, key_size, lengths[record]) != last:
                states[record] = _TORN
            at = last + 1
            continue
        end = _by_counts(data, first, words, key_size, lengths[record])
        if end < 0 and not sane:
            return record, at, _CUT if beyond else _BAD_LENGTH
        states[record] = _BAD_SUM if end < 0 or end == last else _TORN
        at = (last if end < 0 else end) + 1
    return starts.shape[0], at, 0


@nb.njit(nogil=True, cache=True)
def unpack(
    data: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    key_size: int,
    numbers: np.ndarray,
    places: np.ndarray,
    keys: np.ndarray,
) -> None:
    words = numbers.shape[1]
    flat = numbers.reshape(-1).view(np.uint8)
    for record in range(starts.shape[0]):
        at = starts[record]
        flat[record * 4 * words : (record + 1) * 4 * words] = data[at : at + 4 * words]
        at += 4 * words
        for slot in range(lengths.shape[1]):
            at += 4
            for _ in range(lengths[record, slot]):
                value = np.uint64(0)
                for byte in range(key_size):
                    value |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
                keys[places[slot]] = np.int64(value)
                places[slot] += 1
                at += key_size


@nb.njit(nogil=True, cache=True)
def _put(out: np.ndarray, at: int, value: int, size: int) -> None:
    bits = np.uint64(value)
    for byte in range(size):
        out[at + byte] = np.uint8((bits >> np.uint64(8 * byte)) & np.uint64(255))


@nb.njit(nogil=True, cache=True)
def pack(
    numbers: np.ndarray,
    keys: np.ndarray,
    firsts: np.ndarray,
    offsets: np.ndarray,
    key_size: int,
    checked: bool,
    out: np.ndarray,
) -> None:
    rows, words = numbers.shape
    slots, at = offsets.shape[0], 0
    flat = numbers.reshape(-1).view(np.uint8)
    for row in range(rows):
        begin = at + 4 if checked else at
        out[begin : begin + 4 * words] = flat[row * 4 * words : (row + 1) * 4 * words]
        place = begin + 4 * words
        for slot in range(slots):
            first, last = offsets[slot, row], offsets[slot, row + 1]
            _put(out, place, last - first, 4)
            place += 4
            for index in range(first, last):
                _put(out, place, keys[firsts[slot] + index], key_size)
                place += key_size
        if checked:
            _put(out, at, place - begin, 4)
            out[place] = _sum(out, begin, place)
            place += 1
        at = place
