"""Memory: what a dynamic table says it takes, and what it takes."""

from __future__ import annotations

import ctypes
import gc
import mmap
import sys
from pathlib import Path

import numpy as np
import pytest
from dynamic_training import make

from lanner.embedding import SGD, Adagrad, Adam, RowWiseAdagrad, TableConfig
from lanner.embedding.dynamic import DynamicConfig
from lanner.embedding.dynamic.footprint import bytes_for, most_rows, most_waiting
from lanner.embedding.dynamic.table import DynamicTable

SETTINGS = [
    (SGD(0.1), 16, "fp32", {}),
    (Adam(0.1), 64, "bf16", {"ttl_steps": 10**6}),
    (RowWiseAdagrad(0.1), 32, "fp16", {"min_count": 2, "max_waiting": 1 << 19}),
]


def resident() -> int:
    ctypes.CDLL(None).malloc_trim(0)  # or the table grows into memory that earlier tests have left
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def fill(table, count, batch=1 << 16):
    keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, count)
    for step, begin in enumerate(range(0, count, batch), 1):
        table.step = step
        for _ in range(table.config.min_count):
            table.rows_of("t", keys[begin : begin + batch], True)
    for begin in range(0, count // 2 if table.config.min_count > 1 else 0, batch):
        table.rows_of("t", keys[begin : begin + batch] + 1, True)  # these wait


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's account of memory")
@pytest.mark.parametrize(("optimizer", "dim", "dtype", "config"), SETTINGS)
def test_estimates_are_near_the_memory_taken(optimizer, dim, dtype, config):
    fill(make(optimizer, dim, dtype, **config), 1 << 17)  # what is not the table's is there before
    gc.collect()
    before, table = resident(), make(optimizer, dim, dtype, **config)
    fill(table, 1_000_000)
    gc.collect()
    taken, estimate = resident() - before, bytes_for(table.table, optimizer, 1_000_000)
    assert table.nbytes() == pytest.approx(taken, rel=0.1, abs=8 << 20)
    assert 0.8 < taken / estimate < 1.2


@pytest.mark.parametrize("budget", [200_000, 3_000_000, 20_000_000])
@pytest.mark.parametrize(("optimizer", "dim", "dtype", "config"), SETTINGS)
def test_a_budget_is_never_passed(optimizer, dim, dtype, config, budget):
    table = make(optimizer, dim, dtype, max_bytes=budget, eviction="lru", **config)
    rng, most = np.random.default_rng(1), 0
    for step in range(1, 30):
        table.step = step
        for _ in range(2):
            table.rows_of("t", rng.integers(0, 2 * table.limit + 50, table.limit // 4 + 10), True)
            most = max(most, table.nbytes())
    assert most <= budget and len(table) <= table.limit
    assert most > budget * 0.4 and table.counters.evicted > 0


def test_most_rows_are_what_fits():
    for dynamic in (DynamicConfig(max_bytes=5_000_000), DynamicConfig(max_bytes=50_000_000, ttl_steps=5)):
        table = TableConfig("t", "dynamic", 16, dynamic=dynamic)
        rows = most_rows(table, Adagrad(0.1))
        assert bytes_for(table, Adagrad(0.1), rows) <= dynamic.max_bytes < bytes_for(table, Adagrad(0.1), rows + 1)
    table = TableConfig("t", "dynamic", 16, dynamic=DynamicConfig(max_rows=10, max_bytes=5_000_000))
    assert most_rows(table, SGD(0.1)) == 10
    assert most_rows(TableConfig("t", "dynamic", 16), SGD(0.1)) > 10_000_000


def test_waiting_keys_take_a_part_of_the_budget():
    config = DynamicConfig(min_count=2, max_bytes=10_000_000)
    assert 2 < most_waiting(config) < config.max_waiting == most_waiting(DynamicConfig(min_count=2))


@pytest.mark.parametrize("keys", [0, 3000, 40_000])
def test_few_keys_wait_in_little_memory(keys: int):
    table = make(SGD(0.1), 4, min_count=2)
    for begin in range(0, keys, 1000):
        table.step += 1
        table.rows_of("t", np.arange(begin, begin + 1000), True)
    assert len(table) == 0 and table.nbytes() <= bytes_for(table.table, SGD(0.1), 1, keys) < 3 << 20
    assert bytes_for(table.table, SGD(0.1), 1, 1 << 40) == bytes_for(table.table, SGD(0.1), 1) > 100 << 20


def test_another_optimizer_may_leave_room_for_fewer_rows():
    table = make(SGD(0.1), 16, max_bytes=2_000_000)
    assert DynamicTable(table.table, Adam(0.1)).limit < table.limit
    rows = table.limit
    table.set_optimizer(Adam(0.1))
    assert table.limit < rows
    fill(table, table.limit)
    table.step += 1
    table.set_optimizer(SGD(0.1))
    assert len(table) == table.limit
