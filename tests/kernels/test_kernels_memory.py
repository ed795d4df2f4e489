"""Buffers: zeroed, aligned, and used again only when nobody holds them."""

from __future__ import annotations

import gc
import mmap
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from lanner.kernels import memory
from lanner.kernels.memory import HUGE_PAGE, Pool


@pytest.mark.parametrize("shape", [0, 5, (3, 7), (1 << 20,), (3, 1 << 20)])
@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_zeros(shape, kind):
    array = memory.zeros(shape, kind)
    assert array.shape == ((shape,) if isinstance(shape, int) else shape) and array.dtype == kind
    assert not array.any() and array.flags.c_contiguous and array.flags.writeable
    assert not array.size or array.ctypes.data % (HUGE_PAGE if array.nbytes >= HUGE_PAGE // 2 else 64) == 0


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux reserves addresses that cost nothing")
def test_a_growing_array_takes_memory_where_it_is_touched():
    before = resident()
    growing = memory.Growing(1 << 32, (16,), np.float32)  # 256 GiB of addresses
    array = growing.array
    assert array.shape == (1 << 32, 16) and array.ctypes.data % HUGE_PAGE == 0
    assert resident() - before < 1 << 20
    array[: 1 << 20] = 1.0
    assert 1 << 26 <= resident() - before < (1 << 26) + 3 * HUGE_PAGE
    assert not growing.grow(1 << 31) and growing.array is array and array[1 << 31].sum() == 0
    array[-1] = 2.0


def test_a_growing_array_is_copied_where_addresses_are_not_to_be_had(monkeypatch):
    monkeypatch.setattr(memory, "_addresses_count", lambda: True)
    growing = memory.Growing(1000, (3,), np.int64)
    for rows in (1, 65, 66, 500, 1000):
        growing.grow(rows)
        assert rows <= len(growing.array) <= 1000
        growing.array[rows - 1] = rows
    assert [row[0] for row in growing.array[[0, 64, 65, 499, 999]]] == [1, 65, 66, 500, 1000]
    assert np.count_nonzero(growing.array) == 15
    with pytest.raises(ValueError, match="1001"):
        growing.grow(1001)


def test_addresses_nobody_has_are_not_reserved():
    assert memory.Growing(1 << 60, (), np.uint8).array.size == 64


def test_a_block_comes_back_when_the_last_holder_is_gone():
    pool = Pool()
    first = pool.empty((100, 1000))
    address, view, array = first.data_ptr(), first[5:], first.numpy()[7:]
    del first
    for holder in ("view", "array"):
        gc.collect()
        assert pool.empty((100, 1000)).data_ptr() != address, holder
        if holder == "view":
            del view
        else:
            del array
    blocks = [pool.empty((100, 1000)) for _ in range(3)]
    assert address in [block.data_ptr() for block in blocks]
    assert len({block.data_ptr() for block in blocks}) == 3


def test_autograd_holds_what_it_saved():
    pool, leaf = Pool(), torch.ones(50_000, requires_grad=True)
    saved = pool.empty((50_000,)).fill_(3.0)
    loss = (leaf * saved).sum()
    del saved
    for _ in range(4):
        pool.empty((50_000,)).fill_(-1.0)
    loss.backward()
    assert (leaf.grad == 3.0).all()


def test_near_sizes_share_blocks_and_shapes_are_exact():
    pool = Pool()
    addresses = set()
    for rows in range(1000, 1010):
        tensor = pool.empty((rows, 100))
        assert tensor.shape == (rows, 100) and tensor.is_contiguous()
        addresses.add(tensor.data_ptr())
        del tensor
    assert len(addresses) <= 2


def test_threads_never_get_the_same_block():
    pool, clashes = Pool(), []

    def client(mark):
        for _ in range(200):
            tensor = pool.empty((20_000,))
            tensor.fill_(mark)
            if not (tensor == mark).all():
                clashes.append(mark)

    threads = [threading.Thread(target=client, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not clashes


def test_scratch_grows_and_belongs_to_its_thread():
    small = memory.scratch("test", 10, np.int64)
    assert memory.scratch("test", 8, np.int64) is small and small.size >= 10
    assert memory.scratch("test", 1000, np.int64).size >= 1000
    assert memory.scratch("test", 10, np.float32).dtype == np.float32
    seen = []
    thread = threading.Thread(target=lambda: seen.append(memory.scratch("test", 10, np.int64)))
    thread.start()
    thread.join()
    assert seen[0] is not memory.scratch("test", 10, np.int64)
