"""Reads and writes of runs of records in Numba, which calls the C library by itself."""

from __future__ import annotations

import numba as nb
import numpy as np
from numba.core import types

_transfer = types.int64(types.int32, types.uint64, types.uint64, types.int64)  # file, address, bytes, place
_pread = types.ExternalFunction("pread", _transfer)
_pwrite = types.ExternalFunction("pwrite", _transfer)


@nb.njit(inline="always")
def _run_end(numbers: np.ndarray, begin: int, end: int) -> int:
    """Where the run of neighbours that begins at `begin` ends."""
    last = begin + 1
    while last < end and numbers[last] == numbers[last - 1] + 1:
        last += 1
    return last


@nb.njit(nogil=True, cache=True)
def read(begin: int, end: int, file: int, numbers: np.ndarray, records: np.ndarray, size: int) -> int:
    """Read records begin..end; returns how far it came, `end` unless something is wrong."""
    memory = np.uint64(records.ctypes.data)
    at = begin
    while at < end:
        last = _run_end(numbers, at, end)
        done, wanted = np.int64(0), (last - at) * size
        while done < wanted:
            place = memory + np.uint64(at * size + done)
            count = _pread(np.int32(file), place, np.uint64(wanted - done), numbers[at] * size + done)
            if count <= 0:
                return at
            done += count
        at = last
    return end


@nb.njit(nogil=True, cache=True)
def write(begin: int, end: int, file: int, numbers: np.ndarray, records: np.ndarray, size: int) -> int:
    """Write records begin..end; returns how far it came, `end` unless something is wrong."""
    memory = np.uint64(records.ctypes.data)
    at = begin
    while at < end:
        last = _run_end(numbers, at, end)
        done, wanted = np.int64(0), (last - at) * size
        while done < wanted:
            place = memory + np.uint64(at * size + done)
            count = _pwrite(np.int32(file), place, np.uint64(wanted - done), numbers[at] * size + done)
            if count <= 0:
                return at
            done += count
        at = last
    return end
