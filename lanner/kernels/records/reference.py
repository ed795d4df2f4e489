"""Records by the system calls that Python has, one after another: plain, and errors come with their reasons."""

from __future__ import annotations

import os

import numpy as np


def read(file: int, numbers: np.ndarray, records: np.ndarray, size: int) -> None:
    """See `lanner.kernels.records.read`; `records` are bytes."""
    for at, number in enumerate(numbers.tolist()):
        data = b""
        while len(data) < size:
            piece = os.pread(file, size - len(data), number * size + len(data))
            if not piece:
                raise EOFError(f"the file ends within record {number} of {size} bytes")
            data += piece
        records[at * size : (at + 1) * size] = np.frombuffer(data, np.uint8)


def write(file: int, numbers: np.ndarray, records: np.ndarray, size: int) -> None:
    """See `lanner.kernels.records.write`; `records` are bytes."""
    for at, number in enumerate(numbers.tolist()):
        data = records[at * size : (at + 1) * size].tobytes()
        while data:
            data = data[os.pwrite(file, data, (number + 1) * size - len(data)) :]
