"""Records of one size, by number, out of a file and into it: many small reads under way at a time.

Reads go past Python (`pread` from compiled code) and not through a mapping of the file, whose pages would count as
memory of the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from lanner.kernels.records import cpu, reference

__all__ = ["read", "write"]

Array = np.ndarray[Any, Any]
Backend = Literal["reference", "cpu"]

_THREADS = 8  # a disk answers that many random reads in little more time than one
_GRAIN = 256  # records worth a thread of their own


@lru_cache(maxsize=1)
def _pool(_process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="lanner-io")


def read(file: int, numbers: Array, records: Array, backend: Backend = "cpu") -> None:
    """Fill `records` [n] from the file descriptor `file`, which holds record k at k times the size of one.

    `numbers` int64 [n] are distinct and rising: neighbours are read at once. `records` is contiguous, of any type.
    Raises OSError where the system does, and EOFError where the file ends within a record.
    """
    _run(cpu.read if backend == "cpu" else None, reference.read, file, numbers, records)


def write(file: int, numbers: Array, records: Array, backend: Backend = "cpu") -> None:
    """Write `records` [n] to their places, see `read`. Raises OSError; some of the records may be written then."""
    _run(cpu.write if backend == "cpu" else None, reference.write, file, numbers, records)


def _run(
    kernel: Callable[..., int] | None, plain: Callable[..., None], file: int, numbers: Array, records: Array
) -> None:
    flat, size = records.view(np.uint8).reshape(-1), records.itemsize
    if kernel is None:
        plain(file, numbers, flat, size)
        return
    pieces = max(min(_THREADS, len(numbers) // _GRAIN), 1)
    bounds = [len(numbers) * k // pieces for k in range(pieces + 1)]
    calls = [partial(kernel, begin, end, file, numbers, flat, size) for begin, end in pairwise(bounds)]
    ends = [calls[0]()] if pieces == 1 else [*_pool(os.getpid()).map(lambda call: call(), calls)]
    for done, end in zip(ends, bounds[1:], strict=True):
        if done < end:  # the system's own words, and perhaps luck
            plain(file, numbers[done:], flat[done * size :], size)
