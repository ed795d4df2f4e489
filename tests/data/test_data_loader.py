"""The loader's order, shares, resuming and threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest
from dataset_files import MakeDataset, make_rows, make_schema
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.data import Batch, Dataset, Loader, Split
from lanner.errors import ConfigError, DataError, IdRangeError

MakeSplit = Callable[..., Split]


@pytest.fixture
def numbered(make_dataset: MakeDataset) -> MakeSplit:
    """A split of files of the given sizes; the first number of row i of all is i."""

    def make(*sizes: int) -> Split:
        schema = make_schema(rows=(10,), dense=1)
        files, first = {}, 0
        for index, size in enumerate(sizes):
            columns = make_rows(schema, size, index)
            columns["dense"][:, 0] += first
            first += size
            files[f"train/part-{index:05d}.arrow"] = columns
        split = Dataset.open(make_dataset(schema, files, f"dataset{sizes}")).train
        assert split is not None
        return split

    return make


def rows_of(batches: object) -> list[int]:
    return [int(row) for batch in batches for row in batch.dense[:, 0]]  # type: ignore[attr-defined]


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("lanner-loader")]


def test_ranks_share_every_row_once_and_epochs_can_be_repeated(numbered: MakeSplit) -> None:
    split = numbered(400, 600)

    def epoch(number: int) -> list[list[int]]:
        loaders = [Loader(split, 64, shuffle=True, seed=7, rank=rank, world_size=4, workers=2) for rank in range(4)]
        return [rows_of(loader.epoch(number)) for loader in loaders]

    first, second = epoch(0), epoch(1)
    assert sorted(chain(*first)) == list(range(1000)) == sorted(chain(*second))
    assert first == epoch(0) and second == epoch(1)
    assert first != second


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 300),
    batch=st.integers(1, 80),
    ranks=st.integers(1, 5),
    order=st.sampled_from([{}, {"shuffle": True}, {"shuffle": True, "window": 50}]),
    data=st.data(),
)
def test_batches_do_not_depend_on_the_number_of_ranks(
    rows: int, batch: int, ranks: int, order: dict[str, Any], data: st.DataObject
) -> None:
    class Numbers(Split):
        """Rows that are their own numbers."""

        def __init__(self) -> None:
            self.rows, self.name = rows, "numbers"

        def take(self, chosen: object) -> Batch:
            return list(chosen)  # type: ignore[call-overload, no-any-return]

        def slice(self, start: int, stop: int) -> Batch:
            return list(range(start, stop))  # type: ignore[return-value]

    split = Numbers()
    whole = [list(found) for found in Loader(split, batch, seed=3, **order).epoch(5)]
    assert [len(found) for found in whole] == [batch] * (rows // batch) + [rows % batch] * (rows % batch > 0)
    start = data.draw(st.integers(0, len(whole)))
    parts = [
        list(Loader(split, batch, seed=3, rank=rank, world_size=ranks, **order).epoch(5, start))
        for rank in range(ranks)
    ]
    assert all(len(part) == len(whole) - start for part in parts)
    for index, expected in enumerate(whole[start:]):
        shares = [list(part[index]) for part in parts]
        assert list(chain(*shares)) == expected
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("prefetch", [0, 1, 5])
@pytest.mark.parametrize("workers", [1, 3])
def test_in_order_without_shuffling(numbered: MakeSplit, prefetch: int, workers: int) -> None:
    loader = Loader(numbered(100, 29), 64, prefetch=prefetch, workers=workers)
    batches = list(loader.epoch(0))
    assert [len(batch) for batch in batches] == [64, 64, 1] and len(loader) == 3
    assert rows_of(batches) == list(range(129))
    assert rows_of(loader.epoch(0, start=2)) == [128]
    assert rows_of(loader.epoch(0, start=3)) == []


@pytest.mark.parametrize("sizes", [(37,), (1, 1), (0, 1, 0)])
def test_few_rows_make_one_short_batch(numbered: MakeSplit, sizes: tuple[int, ...]) -> None:
    split = numbered(*sizes)
    for rank in range(3):
        batches = list(Loader(split, 64, shuffle=True, rank=rank, world_size=3, workers=4).epoch(0))
        assert len(batches) == 1
        batches[0].bags.validate()
    shares = [list(Loader(split, 64, rank=rank, world_size=3).epoch(0)) for rank in range(3)]
    assert rows_of(chain(*shares)) == list(range(sum(sizes)))


def test_no_rows_are_refused_plainly(numbered: MakeSplit) -> None:
    with pytest.raises(DataError, match="train: no rows"):
        Loader(numbered(0, 0), 64)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"rank": 2, "world_size": 2}, r"rank is 2; expected 0\.\.1"),
        ({"workers": 0}, "workers is 0"),
        ({"window": 0}, "window is 0"),
        ({"prefetch": -1}, "prefetch is -1"),
    ],
)
def test_options_out_of_range_are_named(numbered: MakeSplit, options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Loader(numbered(5), **{"batch_size": 4, **options})  # type: ignore[arg-type]


def test_an_epoch_cannot_start_past_its_end(numbered: MakeSplit) -> None:
    with pytest.raises(ConfigError, match="cannot start at batch 3; it has 2"):
        Loader(numbered(5), 4).epoch(0, start=3)


def test_an_error_while_reading_ahead_reaches_the_consumer(make_dataset: MakeDataset) -> None:
    schema = make_schema(rows=(10,))
    parts = {f"train/part-{index}.arrow": make_rows(schema, 20, index) for index in range(5)}
    parts["train/part-2.arrow"]["s0"][3] = 77
    split = Dataset.open(make_dataset(schema, parts)).train
    assert split is not None
    seen = []
    with pytest.raises(IdRangeError, match=r"part-2.arrow: row 3, column 's0': id 77"):
        for batch in Loader(split, 10, prefetch=3, workers=2).epoch(0):
            seen.append(len(batch))
    assert seen == [10] * 4
    assert not loader_threads()


def test_threads_end_when_the_consumer_stops(numbered: MakeSplit) -> None:
    loader = Loader(numbered(500), 10, shuffle=True, prefetch=4, workers=2)
    batches = loader.epoch(0)
    next(batches)
    assert loader_threads()
    batches.close()
    assert not loader_threads()
    for _ in loader.epoch(0):
        break
    assert not loader_threads()


def test_reading_ahead_runs_ahead_of_the_consumer(numbered: MakeSplit) -> None:
    split = numbered(100)
    read: list[int] = []
    ahead = threading.Event()
    original = split.slice

    def watched(start: int, stop: int) -> Batch:
        read.append(start)
        if len(read) == 4:
            ahead.set()
        return original(start, stop)

    split.slice = watched  # type: ignore[method-assign]
    batches = Loader(split, 10, prefetch=3).epoch(0)
    next(batches)
    assert ahead.wait(10)
    assert read == [0, 10, 20, 30]
    batches.close()


def test_every_epoch_mixes_rows_of_all_files(numbered: MakeSplit) -> None:
    rows = np.array(rows_of(Loader(numbered(500, 500), 100, shuffle=True).epoch(0))).reshape(10, 100)
    share = (rows < 500).mean(axis=1)
    assert share.min() > 0.3 and share.max() < 0.7


@pytest.mark.parametrize("start", [0, 7])
def test_windows_are_read_ahead_in_the_order_of_the_files(numbered: MakeSplit, start: int) -> None:
    split, lock, done = numbered(500, 500), threading.Lock(), threading.Event()
    loader = Loader(split, 20, shuffle=True, seed=1, window=128, workers=2)
    expected = [row for batch in range(start, 50) for row in rows_of([loader.read(2, batch)])]
    awaited, pieces = set(expected[: 128 - 20 * start % 128]), []  # the rest of a window
    original = split.slice

    def watched(begin: int, end: int) -> Batch:
        with lock:
            pieces.append(end - begin)
            awaited.difference_update(range(begin, end))
            if not awaited:
                done.set()
        return original(begin, end)

    split.slice = watched  # type: ignore[method-assign]
    batches = loader.epoch(2, start)
    rows = rows_of([next(batches)])
    assert done.wait(10)
    assert max(pieces) == 2
    assert rows + rows_of(batches) == expected
    assert not loader_threads()
