"""Memory of a training step."""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Tell the C library to keep freed memory for this process (Linux with glibc; elsewhere nothing happens).

    By default every tensor above 32 MiB, and at first every one above 128 KiB, is given back to the kernel when it is
    freed, and the next step pays for clearing the same pages again.
    """
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
