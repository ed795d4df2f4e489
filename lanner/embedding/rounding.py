"""What the random rounding of 16-bit rows goes by: seed, table, key and column, like a row's first values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lanner.embedding.initializers import Cut, stream_of
from lanner.embedding.tables import TableConfig
from lanner.kernels.update import UNNAMED, Names


def names_of(tables: Sequence[TableConfig], spans: Mapping[str, slice], seed: int) -> Names:
    """The names of the rows of `tables`, all of one format, which lie at `spans`."""
    if tables[0].dtype == "fp32":
        return UNNAMED  # nothing is rounded
    return Names(np.array([(spans[table.name].start, *_identity(table, seed)) for table in tables], np.int64))


def _identity(table: TableConfig, seed: int) -> tuple[int, int, int, int]:
    own = stream_of(f"{table.name}:rounding", seed)
    signed = own - (own >> 63 << 64)
    part = table.initializer
    return (signed, part.first, part.step, part.column) if isinstance(part, Cut) else (signed, 0, 1, 0)
