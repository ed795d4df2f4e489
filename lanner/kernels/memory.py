"""Big arrays on 2 MiB pages: fewer address translations in random access, and far fewer page faults."""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

HUGE_PAGE = 2 << 20


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray[Any, Any]:
    """A zeroed C-order array; from 4 MiB on aligned to 2 MiB and backed by huge pages where the system has them.

    The memory goes back to the system with the last array that refers to it.
    """
    dims = (shape,) if isinstance(shape, int) else shape
    size = math.prod(dims) * np.dtype(dtype).itemsize
    if size < 2 * HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(dims, dtype)
    block = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_HUGEPAGE)
    data = np.frombuffer(block, np.uint8)
    skip = -data.ctypes.data % HUGE_PAGE
    return data[skip : skip + size].view(dtype).reshape(dims)
