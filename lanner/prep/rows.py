"""Taking rows out of chunks and putting chunks together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from lanner.prep.chunk import Keys, RawChunk

Rows = slice | np.ndarray
"""A range of rows, or their positions (int64, rising)."""


def rows_where(mask: np.ndarray) -> Rows | None:
    """The rows where `mask` is true, as a slice where they are adjacent; None when there are none."""
    positions = np.flatnonzero(mask)
    if not len(positions):
        return None
    first, last = int(positions[0]), int(positions[-1])
    return slice(first, last + 1) if last - first + 1 == len(positions) else positions


def take_rows(chunk: RawChunk, rows: Rows) -> RawChunk:
    """The given rows of `chunk`; a slice gives views, positions copy."""
    if isinstance(rows, slice) and rows.start == 0 and rows.stop == chunk.rows:
        return chunk
    return RawChunk(
        rows=rows.stop - rows.start if isinstance(rows, slice) else len(rows),
        labels=chunk.labels[rows],
        dense=chunk.dense[rows],
        sparse=[_take_keys(keys, rows) for keys in chunk.sparse],
        weight=None if chunk.weight is None else chunk.weight[rows],
        group=None if chunk.group is None else chunk.group[rows],
        time=None if chunk.time is None else chunk.time[rows],
        unmatched=None if chunk.unmatched is None else chunk.unmatched[rows],
    )


def _take_keys(keys: Keys, rows: Rows) -> Keys:
    if keys.offsets is not None:
        return _take_bags(keys, rows)
    missing = None if keys.missing is None else keys.missing[rows]
    return Keys(keys.keys[rows], missing, texts=_take_texts(keys.texts, rows))


def _take_bags(keys: Keys, rows: Rows) -> Keys:
    assert keys.offsets is not None
    if isinstance(rows, slice):
        offsets = keys.offsets[rows.start : rows.stop + 1]
        flat: Rows = slice(int(offsets[0]), int(offsets[-1]))
        return Keys(keys.keys[flat], offsets=offsets - offsets[0], texts=_take_texts(keys.texts, flat))
    starts, lengths = keys.offsets[rows], keys.offsets[rows + 1] - keys.offsets[rows]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return Keys(keys.keys[flat], offsets=offsets, texts=_take_texts(keys.texts, flat))


def _take_texts(texts: pa.Array | None, rows: Rows) -> pa.Array | None:
    if texts is None:
        return None
    return texts.slice(rows.start, rows.stop - rows.start) if isinstance(rows, slice) else texts.take(pa.array(rows))


def join_chunks(chunks: list[RawChunk], texts: bool = True) -> RawChunk:
    """One chunk with the rows of all, without the texts where they are not asked for."""
    if len(chunks) == 1:
        return chunks[0]
    beside = {name: [getattr(chunk, name) for chunk in chunks] for name in ("weight", "group", "time")}
    return RawChunk(
        rows=sum(chunk.rows for chunk in chunks),
        labels=np.concatenate([chunk.labels for chunk in chunks]),
        dense=np.concatenate([chunk.dense for chunk in chunks]),
        sparse=[_join_keys([chunk.sparse[k] for chunk in chunks], texts) for k in range(len(chunks[0].sparse))],
        **{name: np.concatenate(parts) for name, parts in beside.items() if parts[0] is not None},
    )


def _join_keys(parts: list[Keys], texts: bool) -> Keys:
    keep = texts and parts[0].texts is not None
    joined = Keys(
        np.concatenate([part.keys for part in parts]),
        texts=pa.concat_arrays([part.texts for part in parts]) if keep else None,
    )
    if parts[0].offsets is not None:
        lengths = np.concatenate([np.diff(part.offsets) for part in parts if part.offsets is not None])
        joined.offsets = np.concatenate([[0], np.cumsum(lengths)])
    elif any(part.missing is not None for part in parts):
        joined.missing = np.concatenate(
            [np.zeros(len(part.keys), np.bool_) if part.missing is None else part.missing for part in parts]
        )
    return joined


def batches(chunks: Iterable[RawChunk], size: int) -> Iterator[RawChunk]:
    """The same rows in the same order, in chunks of exactly `size` rows (the last may be shorter).

    What is written then does not depend on how the input was cut into blocks.
    """
    held: list[RawChunk] = []
    count = 0
    for chunk in chunks:
        at = 0
        while at < chunk.rows:
            stop = min(chunk.rows, at + size - count)
            held.append(take_rows(chunk, slice(at, stop)))
            count, at = count + stop - at, stop
            if count == size:
                yield join_chunks(held, texts=False)
                held, count = [], 0
    if held:
        yield join_chunks(held, texts=False)
