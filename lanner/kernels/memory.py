"""Memory for kernels: big arrays on 2 MiB pages, and output tensors whose memory is used again.

Huge pages cost fewer address translations in random access. Fresh memory costs a page fault every 4 KiB at first
touch: for a 54 MB output that takes longer than filling it, so outputs come from a pool.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import threading
import weakref
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor

HUGE_PAGE = 2 << 20
LINE = 64  # bytes of a cache line
_POOLED = 1 << 16  # bytes from which a fresh allocation's page faults are worth a pool
_KEPT = 4  # free blocks kept of each size
_NORESERVE = 0x4000  # MAP_NORESERVE of Linux, which Python names from 3.13 on


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


class Growing:
    """A zeroed array whose first axis grows, in place where the system lets address space be reserved for it.

    `array` then has `limit` rows from the start; memory counts only from the first write to a page, which is a small
    one in the first 2 MiB and a huge one after that. Elsewhere `array` starts small and is copied when it grows.
    """

    def __init__(self, limit: int, width: tuple[int, ...], dtype: DTypeLike) -> None:
        self._limit, self._width, self._dtype = limit, width, np.dtype(dtype)
        self.row_bytes = math.prod(width) * self._dtype.itemsize
        block = _reserved(limit * self.row_bytes)
        self.array = zeros((min(limit, 64), *width), dtype) if block is None else self._shaped(block)

    def grow(self, rows: int) -> bool:
        """Have at least `rows` rows, up to the limit; whether `array` is another one now."""
        held = len(self.array)
        if rows <= held:
            return False
        if rows > self._limit:
            raise ValueError(f"{rows} rows are wanted, {self._limit} are the limit")
        larger = zeros((min(max(rows, 2 * held), self._limit), *self._width), self._dtype)
        larger[:held] = self.array
        self.array = larger
        return True

    def _shaped(self, block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return block[: self._limit * self.row_bytes].view(self._dtype).reshape(self._limit, *self._width)


def _reserved(size: int) -> np.ndarray[Any, Any] | None:
    """Zeroed bytes that cost no memory until they are touched; None where the system counts or limits addresses."""
    if not sys.platform.startswith("linux") or _addresses_count():
        return None
    try:
        block = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
    except (OSError, ValueError, OverflowError):
        return None
    data = np.frombuffer(block, np.uint8)
    skip = -data.ctypes.data % HUGE_PAGE
    if size > HUGE_PAGE:
        start = -(-(skip + HUGE_PAGE) // mmap.PAGESIZE) * mmap.PAGESIZE
        block.madvise(mmap.MADV_HUGEPAGE, start, size + HUGE_PAGE - start)
    return data[skip : skip + size]


def _addresses_count() -> bool:
    """Whether reserved addresses are charged like memory: strict overcommit, or a limit on the address space."""
    import resource  # not on every system

    policy = Path("/proc/sys/vm/overcommit_memory")
    strict = policy.exists() and policy.read_text().strip() == "2"
    return strict or resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def touched(size: int) -> int:
    """Bytes of memory that the first `size` bytes of a `Growing` array take once they are written to."""
    page = HUGE_PAGE if size > HUGE_PAGE else mmap.PAGESIZE
    return -(-size // page) * page


def physical() -> int:
    """Bytes of physical memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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


def empty_tensor(shape: tuple[int, ...], device: torch.device | None = None) -> Tensor:
    """An uninitialised float32 tensor for outputs made anew at every step: from the process's pool (see `Pool`).

    PyTorch has a pool of its own for the memory of a CUDA `device`.
    """
    return _outputs.empty(shape) if device is None or device.type == "cpu" else torch.empty(shape, device=device)


_thread = threading.local()


def scratch(name: str, size: int, dtype: DTypeLike) -> np.ndarray[Any, Any]:
    """At least `size` elements of any content, kept by this thread under `name` and handed out again next time."""
    kept = _thread.__dict__
    key = f"{name}:{np.dtype(dtype)}"
    if key not in kept or kept[key].size < size:
        kept[key] = zeros(_round(size), dtype)
    array: np.ndarray[Any, Any] = kept[key]
    return array
