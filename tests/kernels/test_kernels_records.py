"""Records in files: the fast kernels against Python's own calls, and a file that is too short."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.kernels import records

RECORD = np.dtype([("weights", "f4", (3,)), ("step", "i4"), ("flag", "u1")])


@given(st.integers(0, 5000), st.integers(0, 2**32), st.sampled_from([0.02, 0.5, 1.0]))
def test_what_is_written_is_read(count: int, seed: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    numbers = np.flatnonzero(rng.random(count) < density)
    content = rng.integers(0, 256, (len(numbers), RECORD.itemsize), np.uint8)
    with tempfile.TemporaryFile() as file:
        os.ftruncate(file.fileno(), count * RECORD.itemsize)
        records.write(file.fileno(), numbers, content.reshape(-1).view(RECORD))
        for backend in ("cpu", "reference"):
            found = np.empty(len(numbers), RECORD)
            records.read(file.fileno(), numbers, found, backend=backend)
            assert np.array_equal(found.view(np.uint8), content.reshape(-1))
        whole = np.fromfile(file, RECORD)
        assert np.array_equal(whole[numbers].view(np.uint8), content.reshape(-1))
        assert not np.delete(whole, numbers).view(np.uint8).any()


def test_errors_are_those_of_the_system() -> None:
    with tempfile.TemporaryFile() as file:
        os.ftruncate(file.fileno(), 10 * RECORD.itemsize - 1)
        with pytest.raises(EOFError, match=f"within record 9 of {RECORD.itemsize} bytes"):
            records.read(file.fileno(), np.arange(8, 11), np.empty(3, RECORD))
        number = file.fileno()
    for move in (records.read, records.write):
        with pytest.raises(OSError, match="Bad file descriptor"):
            move(number, np.arange(3), np.empty(3, RECORD))
