"""Gradients that come when the rows they are of may be those of other keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lanner.embedding.dynamic.table import DynamicTable
from lanner.embedding.named import rows_in
from lanner.errors import LannerError

if TYPE_CHECKING:
    from lanner.embedding.gradients import Pending
    from lanner.embedding.sharding.sharded import ShardedTables
    from lanner.embedding.store import Store


def require_rows(pending: Sequence[Pending], steps: int, sharded: ShardedTables | None) -> None:
    """Raise LannerError naming a key of a dynamic table that has lost its row since one of `pending` was looked up.

    Rows that a step looks up stay until it is taken. Where another step was taken between, of `steps` in all, they may
    have made room.
    """
    late = (each for each in pending if each.steps != steps)
    for store, keys, rows in (found for each in late for found in _looked_up(each, sharded)):
        if isinstance(store, DynamicTable) and (gone := store.gone(keys, rows)).any():
            raise LannerError(
                f"table {store.name!r}: key {keys[np.argmax(gone)]} has lost its row since its batch was looked up, "
                "as another step was taken meanwhile; run backward of a batch before the next forward, or set "
                "defer_updates and take one step for both"
            )


def _looked_up(pending: Pending, sharded: ShardedTables | None) -> Iterator[tuple[Store, np.ndarray, np.ndarray]]:
    """By store, keys and the rows that were found for them."""
    if sharded is not None:
        yield from sharded.looked_up(pending)
        return
    assert pending.given is not None
    for store, layout, bags in pending.local:
        yield store, rows_in(layout, replace(bags, values=pending.given.values)), rows_in(layout, bags)
