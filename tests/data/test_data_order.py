"""Orders of rows: each row once, in windows whose rows lie in long stretches, from any place on."""

from __future__ import annotations

from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lanner.data.order import Shuffle

PINNED = [193, 182, 159, 66, 73, 115, 161, 37]


@given(rows=st.integers(1, 3000), window=st.none() | st.integers(1, 3100), epoch=st.integers(0, 9), data=st.data())
def test_every_row_comes_once_and_any_part_can_be_had(
    rows: int, window: int | None, epoch: int, data: st.DataObject
) -> None:
    order = Shuffle(rows, window, 7)
    whole = order.numbers(epoch, 0, rows)
    assert sorted(whole) == list(range(rows))
    begin = data.draw(st.integers(0, rows))
    end = data.draw(st.integers(begin, rows))
    assert order.numbers(epoch, begin, end).tolist() == whole[begin:end].tolist()


@given(rows=st.integers(2, 3000), window=st.integers(1, 2999), epoch=st.integers(0, 9))
def test_stretches_are_the_rows_of_their_window(rows: int, window: int, epoch: int) -> None:
    order = Shuffle(rows, window, 7)
    whole = order.numbers(epoch, 0, rows)
    windows = [order.window_at(place) for place in range(rows)]
    for number in range(windows[-1] + 1):
        held = order.stretches(epoch, number)
        assert sorted(chain.from_iterable(range(*each) for each in held)) == sorted(whole[np.equal(windows, number)])
        assert len(held) <= 66  # 64, one that is shorter, and one cut in two at the last row
    assert order.stretches(epoch, windows[-1] + 1) == []


def test_windows_epochs_and_seeds_have_orders_of_their_own() -> None:
    order = Shuffle(64_000, 6400, 7)
    first = order.numbers(0, 0, 12_800).reshape(2, 6400)
    assert not np.array_equal(*(np.argsort(np.argsort(each)) for each in first))
    for other in (order.numbers(1, 0, 12_800), Shuffle(64_000, 6400, 8).numbers(0, 0, 12_800)):
        assert (other != first.reshape(-1)).mean() > 0.99
    # Neighbours in the order come from all over the window, the window from all over the rows.
    assert np.abs(np.diff(first[0])).mean() > 64_000 / 4
    assert np.histogram(first[0], 8, (0, 64_000))[0].min() > 0


def test_the_order_is_pinned() -> None:
    """Resuming a run under a later release needs the same order."""
    assert Shuffle(200, 100, 7).numbers(3, 0, 8).tolist() == PINNED
