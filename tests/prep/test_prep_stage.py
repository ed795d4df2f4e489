"""Staged chunks come back as they were, whole or in parts."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.prep.chunk import Keys, RawChunk
from lanner.prep.rows import batches, join_chunks, rows_where, take_rows
from lanner.prep.stage import StagedFile, StageWriter, read_chunk, write_chunk


def make_chunk(rows: int, seed: int = 0) -> RawChunk:
    random = np.random.default_rng(seed)
    narrow, wide = [0.0, 1.0, -0.0, np.nan, 0.5, -np.inf], [2.0**24 + 1, 1e300, 0.1]
    dense = random.choice(narrow + wide if seed % 2 else narrow, (rows, 2))
    lengths = random.integers(0, 3, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    words = pa.array([f"w{k}" for k in random.integers(0, 9, rows)])
    flat = random.integers(-(2**63), 2**63 - 1, int(offsets[-1]))
    return RawChunk(
        rows,
        random.random((rows, 2)).astype(np.float32),
        dense,
        [
            Keys(random.integers(0, 2**32, rows, np.uint32), random.random(rows) < 0.3),
            Keys(random.integers(-5, 5, rows)),
            Keys(flat, offsets=offsets, texts=pa.array([f"t{k}" for k in flat.tolist()])),
            Keys(random.integers(0, 9, rows), texts=words),
        ],
        weight=random.random(rows).astype(np.float32),
        group=random.integers(0, 9, rows),
        time=random.integers(0, 9, rows),
    )


def rows_of(chunk: RawChunk) -> list[tuple[object, ...]]:
    """Each row as plain values; missing keys as None, whatever stands in their place."""
    columns: list[list[object]] = [chunk.labels.tolist(), chunk.dense.astype(np.float64).view(np.int64).tolist()]
    for keys in chunk.sparse:
        values = (
            list(zip(keys.keys.tolist(), keys.texts.to_pylist(), strict=True)) if keys.texts else keys.keys.tolist()
        )
        if keys.offsets is not None:
            bounds = keys.offsets.tolist()
            columns.append([values[a:b] for a, b in pairwise(bounds)])
        else:
            gone = [False] * chunk.rows if keys.missing is None else keys.missing.tolist()
            columns.append([None if lost else value for lost, value in zip(gone, values, strict=True)])
    for extra in (chunk.weight, chunk.group, chunk.time):
        if extra is not None:
            columns.append(extra.tolist())
    assert all(len(column) == chunk.rows for column in columns)
    return list(zip(*columns, strict=True))


def without_texts(chunk: RawChunk) -> RawChunk:
    sparse = [Keys(keys.keys, keys.missing, keys.offsets) for keys in chunk.sparse]
    return RawChunk(chunk.rows, chunk.labels, chunk.dense, sparse, chunk.weight, chunk.group)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 40), st.integers(0, 9), st.data())
def test_round_trip_of_any_part(rows: int, seed: int, data: st.DataObject) -> None:
    chunk = make_chunk(rows, seed)
    chosen = rows_where(np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows))))
    if chosen is None:
        return
    part = take_rows(chunk, chosen)
    positions = np.arange(rows)[chosen]
    assert rows_of(part) == [rows_of(chunk)[at] for at in positions]
    sink = io.BytesIO()
    write_chunk(sink, part)
    found = read_chunk(sink.getvalue())
    assert rows_of(found) == rows_of(part)
    again = take_rows(found, slice(0, found.rows))
    assert rows_of(again) == rows_of(part)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(1, 25))
def test_batches_have_the_same_rows_in_even_portions(sizes: list[int], size: int) -> None:
    chunks = [make_chunk(rows, seed) for seed, rows in enumerate(sizes)]
    found = list(batches(iter(chunks), size))
    assert [chunk.rows for chunk in found[:-1]] == [size] * (len(found) - 1)
    rows = [row for chunk in found for row in rows_of(without_texts(chunk))]
    assert rows == [row for chunk in chunks for row in rows_of(without_texts(chunk))]


def test_joined_chunks_mark_missing_only_where_they_were() -> None:
    first = RawChunk(2, np.zeros((2, 0)), np.zeros((2, 0)), [Keys(np.array([1, 2]))])
    second = RawChunk(1, np.zeros((1, 0)), np.zeros((1, 0)), [Keys(np.array([3]), np.array([True]))])
    assert join_chunks([first, second]).sparse[0].missing.tolist() == [False, False, True]  # type: ignore[union-attr]


def test_a_staged_file_is_there_only_when_it_was_finished(tmp_path: Path) -> None:
    with StageWriter(tmp_path / "a", "logs") as writer:
        for seed in range(3):
            writer.add(make_chunk(5, seed))
        writer.add(make_chunk(0))
        assert StagedFile.load(tmp_path / "a") is None
        writer.finish({"fields": 2})
    found = StagedFile.load(tmp_path / "a")
    assert found is not None
    assert (found.file, found.rows, len(found.chunks), found.rejected) == ("logs", 15, 1, {"fields": 2})
    assert rows_of(found.read(0)) == [row for seed in range(3) for row in rows_of(make_chunk(5, seed))]
    with pytest.raises(RuntimeError), StageWriter(tmp_path / "b", "logs") as writer:
        writer.add(make_chunk(5))
        raise RuntimeError
    assert not (tmp_path / "b").exists()
