"""Buffers: zeroed, aligned, and used again only when nobody holds them."""

from __future__ import annotations

import gc
import threading

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
