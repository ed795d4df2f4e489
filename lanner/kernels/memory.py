"""Memory for kernels: big arrays on 2 MiB pages, and output tensors whose memory is used again.

Huge pages cost fewer address translations in random access. Fresh memory costs a page fault every 4 KiB at first
touch: for a 54 MB output that takes longer than filling it, so outputs come from a pool.
"""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor

HUGE_PAGE = 2 << 20
LINE = 64  # bytes of a cache line
_POOLED = 1 << 16  # bytes from which a fresh allocation's page faults are worth a pool
_KEPT = 4  # free blocks kept of each size


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray[Any, Any]:
    """A zeroed C-order array on whole cache lines; from 1 MiB on it lies on huge pages where the system has them.

    The memory goes back to the system with the last array that refers to it.
    """
    dims = (shape,) if isinstance(shape, int) else shape
    size = math.prod(dims) * np.dtype(dtype).itemsize
    if size < HUGE_PAGE // 2 or not hasattr(mmap, "MADV_HUGEPAGE"):
        small = np.zeros(size + LINE, np.uint8)
        skip = -small.ctypes.data % LINE
        return small[skip : skip + size].view(dtype).reshape(dims)
    block = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_HUGEPAGE)
    data = np.frombuffer(block, np.uint8)
    skip = -data.ctypes.data % HUGE_PAGE
    return data[skip : skip + size].view(dtype).reshape(dims)


class Pool:
    """Float32 tensors over memory that is used again once nothing refers to it.

    A block comes back when the last tensor over it is gone: the caller's, one saved by autograd, a view or a NumPy
    array made from one. Safe in several threads.
    """

    def __init__(self) -> None:
        self._free: dict[int, deque[np.ndarray[Any, Any]]] = {}

    def empty(self, shape: tuple[int, ...]) -> Tensor:
        """A tensor of `shape` with any content."""
        count = math.prod(shape)
        if count * 4 < _POOLED:
            return torch.empty(shape)
        size = _round(count)
        free = self._free.setdefault(size, deque(maxlen=_KEPT))
        try:
            block = free.pop()
        except IndexError:
            block = zeros(size, np.float32)
        lease = block[:count]
        weakref.finalize(lease, free.append, block).atexit = False
        return torch.from_numpy(lease).view(shape)  # PyTorch's storage holds `lease` itself


def _round(count: int) -> int:
    """A size with room for `count` floats: one of 8 steps to each power of two, so that few sizes are in use."""
    step = 1 << max(count.bit_length() - 4, 0)
    return -(-count // step) * step


_outputs = Pool()


def empty_tensor(shape: tuple[int, ...]) -> Tensor:
    """An uninitialised float32 tensor from the process's pool (see `Pool`), for outputs made anew at every step."""
    return _outputs.empty(shape)


_thread = threading.local()


def scratch(name: str, size: int, dtype: DTypeLike) -> np.ndarray[Any, Any]:
    """At least `size` elements of any content, kept by this thread under `name` and handed out again next time."""
    kept = _thread.__dict__
    key = f"{name}:{np.dtype(dtype)}"
    if key not in kept or kept[key].size < size:
        kept[key] = zeros(_round(size), dtype)
    array: np.ndarray[Any, Any] = kept[key]
    return array
