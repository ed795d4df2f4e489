"""Records of HugeCTR's Norm format: found and measured, taken apart, put together.

A record is `words` float32 (labels, then numbers) and, for each of S slots, an int32 count and that many keys of
`key_size` bytes. In files with checksums an int32 before it gives its length in bytes, and a byte behind it the sum of
those bytes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from lanner.kernels.norm import cpu, reference

__all__ = ["BAD_LENGTH", "BAD_SUM", "CUT", "GOOD", "TORN", "Found", "pack", "scan", "unpack"]

Array = np.ndarray[Any, Any]
Backend = Literal["reference", "cpu"]

GOOD, BAD_SUM, TORN = 0, 1, 2
"""States of a record: whole; its bytes have another sum; its counts do not fit its length."""

CUT, BAD_LENGTH = 3, 4
"""Why a scan ended early: the bytes end within a record; a length or count with which no next record can be found."""


class Found(NamedTuple):
    """N records: `starts` int64 [N] of their first word, `lengths` int64 [N, S] keys, `states` uint8 [N].

    `end` is where the next record begins, `stop` 0 or why it was not looked at.
    """

    starts: Array
    lengths: Array
    states: Array
    end: int
    stop: int


def scan(
    data: Array,
    begin: int,
    most: int,
    words: int,
    slots: int,
    key_size: int,
    checked: bool,
    last: bool = True,
    backend: Backend = "cpu",
) -> Found:
    """Find up to `most` records in `data` (uint8) from byte `begin` on.

    `last` says that the file ends where `data` does. A damaged length is told from damaged content where the record's
    own counts lead to a byte that is their sum: the next record is then looked for behind it.
    """
    starts, states = np.zeros(most, np.int64), np.zeros(most, np.uint8)
    lengths = np.zeros((most, slots), np.int64)
    run = reference.scan if backend == "reference" else cpu.scan
    count, end, stop = run(data, begin, words, key_size, checked, last, starts, lengths, states)
    return Found(starts[:count], lengths[:count], states[:count], int(end), int(stop))


def unpack(
    data: Array, starts: Array, lengths: Array, words: int, key_size: int, backend: Backend = "cpu"
) -> tuple[Array, list[Array]]:
    """The float32 words [N, words] of N whole records, and the keys of each slot (int64, flat)."""
    numbers = np.empty((len(starts), words), np.float32)
    ends = np.concatenate([[0], np.cumsum(lengths.sum(axis=0))]).astype(np.int64)
    keys = np.empty(int(ends[-1]), np.int64)
    run = reference.unpack if backend == "reference" else cpu.unpack
    run(data, starts, lengths, key_size, numbers, ends[:-1].copy(), keys)
    return numbers, [keys[begin:end] for begin, end in pairwise(ends)]


def pack(
    numbers: Array, keys: list[Array], offsets: Array, key_size: int, checked: bool, backend: Backend = "cpu"
) -> Array:
    """The bytes of N records: `numbers` float32 [N, words], flat int64 `keys` of S slots, `offsets` int64 [S, N+1]."""
    rows, words = numbers.shape
    flat = np.concatenate([np.empty(0, np.int64), *keys])
    firsts = np.concatenate([[0], np.cumsum([len(slot) for slot in keys])]).astype(np.int64)
    size = rows * (4 * (words + len(keys)) + 5 * checked) + key_size * len(flat)
    out = np.empty(size, np.uint8)
    run = reference.pack if backend == "reference" else cpu.pack
    run(np.ascontiguousarray(numbers, np.float32), flat, firsts, offsets, key_size, checked, out)
    return out
