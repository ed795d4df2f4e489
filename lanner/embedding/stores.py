"""The stores that hold the tables of a collection."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lanner.embedding import backed, joint
from lanner.embedding.dynamic.table import DynamicTable
from lanner.embedding.optimizers import Optimizer
from lanner.embedding.store import Store
from lanner.embedding.tables import TableConfig


def stores_of(
    tables: Sequence[TableConfig],
    optimizer: Optimizer,
    seed: int,
    track: bool,
    backing: backed.Backing | None,
    device: torch.device,
) -> list[Store]:
    """Stores for `tables`; `optimizer` is that of tables without one, with `track` changes can be told by step.

    Static tables kept whole in memory lie on `device`, all others on the host.
    """
    static = [table for table in tables if table.rows != "dynamic"]
    dynamic = [table for table in tables if table.rows == "dynamic"]
    on_disk = backed.allocate(static, optimizer, seed, track, backing) if backing else []
    elsewhere = {store.name for store in on_disk}
    in_memory = [table for table in static if table.name not in elsewhere]
    return [
        *joint.allocate(in_memory, optimizer, seed, track, device),
        *on_disk,
        *(DynamicTable(table, optimizer, seed) for table in dynamic),
    ]
