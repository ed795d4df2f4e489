"""A global shuffle of rows in bounded memory: rows are dealt out by a random key, then each share is sorted.

The key of a row is a one-to-one hash of its number and the seed, and the rows come in the order of their keys: the
result depends on nothing else, neither on memory nor on how the rows came in chunks.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from lanner.kernels.hashing import scatter
from lanner.prep.chunk import RawChunk
from lanner.prep.rows import join_chunks, take_rows
from lanner.prep.stage import StagedFile, StageWriter

_BITS = 6
"""Rows are dealt out into 2^_BITS shares at a time, so that few files are open; and again where that is too coarse."""
_CHUNK = 1 << 15
_ROWS_TOGETHER = 1 << 8, 1 << 13
"""Least and most rows of a share that are written at once."""


def shuffled(chunks: Iterable[RawChunk], rows: int, seed: int, folder: Path, memory: int) -> Iterator[RawChunk]:
    """The `rows` rows of `chunks` in random order, in chunks of any size.

    Shares lie below `folder` meanwhile, one of about `memory` bytes at most is in memory (one row at least).
    """
    yield from _ordered(with_keys(chunks, seed), rows, 0, folder, memory)
    shutil.rmtree(folder, ignore_errors=True)


def with_keys(chunks: Iterable[RawChunk], seed: int, first: int = 0) -> Iterator[RawChunk]:
    """The chunks without texts, and with the random keys of their rows as times: nothing asks for those any more.

    `first` is the number of their first row.
    """
    for chunk in chunks:
        numbers = np.arange(first, first + chunk.rows)
        sparse = [replace(keys, texts=None) for keys in chunk.sparse]
        yield replace(chunk, sparse=sparse, time=scatter(numbers, seed))
        first += chunk.rows


def _ordered(chunks: Iterable[RawChunk], rows: int, level: int, folder: Path, memory: int) -> Iterator[RawChunk]:
    held: list[RawChunk] = []
    size, stream = 0, iter(chunks)
    for chunk in stream:
        held.append(chunk)
        size += _bytes(chunk)
        if size > memory and rows > 1 and _BITS * (level + 1) <= 64:
            break
    else:
        if held:
            yield from sorted_by_key(join_chunks(held))
        return
    least, most = _ROWS_TOGETHER
    together = min(max(memory * sum(chunk.rows for chunk in held) // size >> _BITS, least), most)
    for share in _deal(_chained(held, stream), level, folder, together):
        parts = (share.read(at) for at in range(len(share.chunks)))
        yield from _ordered(parts, share.rows, level + 1, share.folder / "shares", memory)
        shutil.rmtree(share.folder, ignore_errors=True)


def _deal(chunks: Iterable[RawChunk], level: int, folder: Path, together: int) -> list[StagedFile]:
    """The rows by `_BITS` bits of their keys, rising; `together` of a share are written at once."""
    shift = np.uint64(64 - _BITS * (level + 1))
    with ExitStack() as opened:
        writers = [opened.enter_context(StageWriter(folder / f"{at:02d}", "", together)) for at in range(1 << _BITS)]
        for chunk in chunks:
            shares = (keys_of(chunk) >> shift) & np.uint64((1 << _BITS) - 1)
            order = np.argsort(shares, kind="stable")
            ends = np.cumsum(np.bincount(shares.astype(np.int64), minlength=1 << _BITS))
            for writer, positions in zip(writers, np.split(order, ends[:-1]), strict=True):
                writer.add(take_rows(chunk, positions))
        return [writer.finish({}) for writer in writers]


def sorted_by_key(chunk: RawChunk) -> Iterator[RawChunk]:
    """The rows of a chunk with keys in the order of those, in smaller chunks."""
    order = np.argsort(keys_of(chunk))
    for first in range(0, chunk.rows, _CHUNK):
        yield replace(take_rows(chunk, order[first : first + _CHUNK]), time=None)


def _chained(held: list[RawChunk], stream: Iterator[RawChunk]) -> Iterator[RawChunk]:
    while held:
        yield held.pop(0)
    yield from stream


def keys_of(chunk: RawChunk) -> np.ndarray:
    """The random keys of the rows (uint64 [rows]) of a chunk from `with_keys`."""
    assert chunk.time is not None
    return chunk.time.view(np.uint64)


def _bytes(chunk: RawChunk) -> int:
    arrays = [chunk.labels, chunk.dense, chunk.weight, chunk.group, chunk.time]
    for keys in chunk.sparse:
        arrays += [keys.keys, keys.missing, keys.offsets]
    return sum(array.nbytes for array in arrays if array is not None)
