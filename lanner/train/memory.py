"""Memory of a training step."""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST = 32 << 20  # bytes; the C library accepts no more
_KEPT = 1 << 30


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Tell the C library to keep up to 1 GiB of freed memory for this process (glibc; elsewhere nothing happens).

    By default the activations of a step go back to the kernel as they are freed, and the next step pays for clearing
    the same pages again: some thousand page faults a step.
    """
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGEST)
    mallopt(_M_TRIM_THRESHOLD, _KEPT)
