"""How much memory a dynamic table takes, and how many rows fit a given memory."""

from __future__ import annotations

from collections.abc import Callable

from lanner.embedding.dynamic import admission, arrays
from lanner.embedding.dynamic.config import DynamicConfig
from lanner.embedding.optimizers import Optimizer
from lanner.embedding.tables import TableConfig
from lanner.errors import ConfigError
from lanner.hashindex import capacity_for
from lanner.kernels.memory import physical

_SLOT = 16  # bytes of a slot of the index
_LOGGED = 1 << 22  # deleted keys remembered at most


def bytes_for(table: TableConfig, optimizer: Optimizer, rows: int, keys: int | None = None) -> int:
    """Bytes that a dynamic table may come to hold on its way to `rows` rows.

    Weights, optimizer state, index (the larger and the smaller one while it grows), and what else is kept by row and
    by key. `optimizer` is the collection's; that of the table goes first. No more than `keys` keys wait for a row
    (default: as many as the limits allow).
    """
    config, optimizer = table.dynamic or DynamicConfig(), table.optimizer or optimizer
    most = most_waiting(config)
    # Of its two indexes one may hold all keys, where they are few.
    waiting = admission.bytes_for(config, most if keys is None else min(most, 2 * keys))
    slots = capacity_for(rows)
    return (
        arrays.bytes_of(rows + 1, table.dim, table.dtype, optimizer)
        + _SLOT * (slots if slots == capacity_for(0) else slots + slots // 2)
        + waiting
        + (8 * most_logged(rows) if _rows_leave(config) else 0)
    )


def most_rows(table: TableConfig, optimizer: Optimizer) -> int:
    """How many rows the table may hold: what its limits say, else a quarter more than physical memory has room for.

    Raises ConfigError when `max_bytes` holds no row.
    """
    config, optimizer = table.dynamic or DynamicConfig(), table.optimizer or optimizer
    held = physical() * 5 // 4 if config.max_bytes is None else config.max_bytes
    rows = _largest(lambda rows: bytes_for(table, optimizer, rows) <= held)
    if rows < 1:
        least = bytes_for(table, optimizer, 1)
        raise ConfigError(f"table {table.name!r}: max_bytes is {config.max_bytes}, one row alone needs {least:,} bytes")
    return rows if config.max_rows is None else min(rows, config.max_rows)


def most_waiting(config: DynamicConfig) -> int:
    """How many keys may wait: `max_waiting`, or fewer where they would take more than a quarter of `max_bytes`."""
    if config.max_bytes is None:
        return config.max_waiting
    quarter = config.max_bytes // 4
    fitting = _largest(lambda keys: admission.bytes_for(config, keys) <= quarter)
    return max(min(config.max_waiting, fitting), 2)


def most_logged(rows: int) -> int:
    """How many deleted keys a table of `rows` rows remembers."""
    return min(max(rows // 2, 1024), _LOGGED)


def _rows_leave(config: DynamicConfig) -> bool:
    limits = config.max_rows, config.max_bytes, config.ttl_steps, config.ttl_seconds
    return any(limit is not None for limit in limits)


def _largest(fits: Callable[[int], bool]) -> int:
    """The largest number up to 2^40 that fits; 0 where none does."""
    low, high = 0, 1 << 40
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
