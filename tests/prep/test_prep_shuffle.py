"""The global shuffle: a permutation that depends on the seed and the rows alone, in little memory."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prep_logs import make_rows, published_bytes, read_split, write

from lanner.kernels.hashing.reference import mix64
from lanner.prep import prepare
from lanner.prep.chunk import Keys, RawChunk
from lanner.prep.rows import join_chunks, take_rows
from lanner.prep.shuffle import shuffled


def rows(count: int) -> RawChunk:
    """Rows with the row number in every column; one-hot keys with gaps, and bags."""
    numbers = np.arange(count)
    offsets = np.concatenate([[0], np.cumsum(numbers % 3)])
    return RawChunk(
        count,
        numbers.astype(np.float32).reshape(-1, 1),
        np.stack([numbers, -numbers], axis=1).astype(np.float64),
        [Keys(numbers, numbers % 5 == 0), Keys(np.repeat(numbers, numbers % 3), offsets=offsets)],
        weight=numbers.astype(np.float32),
        group=numbers * 7,
    )


def expected_order(count: int, seed: int) -> list[int]:
    """By the documented hash of each row's number, in plain Python."""
    keys = [mix64((number + 0x9E3779B97F4A7C15 * (seed + 1)) % 2**64) for number in range(count)]
    return sorted(range(count), key=keys.__getitem__)


@settings(max_examples=25)
@given(
    st.integers(1, 3000), st.integers(0, 2**40), st.lists(st.integers(1, 2999), max_size=6), st.integers(500, 400_000)
)
def test_order_depends_on_seed_and_rows_alone(
    tmp_path_factory: pytest.TempPathFactory, count: int, seed: int, cuts: list[int], memory: int
) -> None:
    whole, folder = rows(count), tmp_path_factory.mktemp("shuffle") / "own"
    ends = sorted({0, count, *(cut for cut in cuts if cut < count)})
    chunks = [take_rows(whole, slice(a, b)) for a, b in itertools.pairwise(ends)]
    found = join_chunks(list(shuffled(iter(chunks), count, seed, folder, memory)))
    order = expected_order(count, seed)
    assert found.dense[:, 0].tolist() == order
    assert found.dense[:, 1].tolist() == [-row for row in order]
    assert found.labels[:, 0].tolist() == order
    assert found.weight is not None and found.group is not None and found.time is None
    assert found.weight.tolist() == order and found.group.tolist() == [7 * row for row in order]
    one, bag = found.sparse
    assert one.missing is not None and bag.offsets is not None
    assert one.missing.tolist() == [row % 5 == 0 for row in order]
    assert one.keys[~one.missing].tolist() == [row for row in order if row % 5]
    assert np.diff(bag.offsets).tolist() == [row % 3 for row in order]
    assert bag.keys.tolist() == [row for row in order for _ in range(row % 3)]
    assert not folder.exists()


def test_only_training_rows_move_and_threads_and_blocks_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [[*row[:1], str(at), *row[2:]] for at, row in enumerate(make_rows(3000))]
    file = write(tmp_path / "logs.tsv", logs)
    prepare(file, tmp_path / "plain", transform="none")
    prepare(file, tmp_path / "shuffled", transform="none", shuffle=True, seed=4)
    order = read_split(tmp_path / "shuffled", "train")["dense"][:, 0].tolist()
    assert order == expected_order(2400, 4)
    same = published_bytes(tmp_path / "plain")
    for name, content in published_bytes(tmp_path / "shuffled").items():
        assert (content == same[name]) == (not name.startswith("train")), name
    monkeypatch.setenv("LANNER_THREADS", "1")
    prepare(file, tmp_path / "again", transform="none", shuffle=True, seed=4, block_bytes=20_000)
    assert published_bytes(tmp_path / "again") == published_bytes(tmp_path / "shuffled")


def test_a_run_killed_while_it_shuffles_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    file = write(tmp_path / "logs.tsv", make_rows(2000))
    prepare(file, tmp_path / "whole", shuffle=True)
    program = f"""
import os, signal
from lanner.prep import prepare, shuffle
sorted_rows = shuffle.sorted_by_key
def dying(chunk):
    yield next(sorted_rows(chunk))
    os.kill(os.getpid(), signal.SIGKILL)
shuffle.sorted_by_key = dying
prepare({str(file)!r}, {str(tmp_path / "out")!r}, shuffle=True, quiet=True)
"""
    died = subprocess.run([sys.executable, "-c", program], env=os.environ, timeout=120)
    assert died.returncode == -signal.SIGKILL
    summary = prepare(file, tmp_path / "out", shuffle=True)
    assert [part.reused for part in summary.files] == [True]
    assert published_bytes(tmp_path / "out") == published_bytes(tmp_path / "whole")
