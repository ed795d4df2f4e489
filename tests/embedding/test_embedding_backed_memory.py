"""A table three times larger than its budget trains in that much memory, to what it comes to all in memory."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lanner.data.batch import Bags
from lanner.embedding import Adagrad, Backing, EmbeddingCollection, FeatureConfig, TableConfig

DIM, BATCH, STEPS = 32, 4096, 150
BUDGET = 64 << 20
ROWS = 3 * BUDGET // (8 * DIM)  # weights and as much state
ELSEWHERE = 8 << 20  # bytes that a step takes beside the table: output, gradient, ids of the batches prepared ahead


def collection(rows: int, memory: int | None) -> EmbeddingCollection:
    backing = None if memory is None else Backing(memory, ahead=2)
    return EmbeddingCollection(
        [TableConfig("t", rows, DIM)], [FeatureConfig("f", "t")], Adagrad(0.1), seed=2, backing=backing
    )


def train(model: EmbeddingCollection, rows: int, steps: int) -> None:
    random = np.random.default_rng(1)
    batches = [torch.from_numpy(random.integers(0, rows, BATCH)) for _ in range(steps)]
    coming = []
    for step in range(steps):
        while len(coming) <= model.ahead and step + len(coming) < steps:
            coming.append(model.prepare(Bags(("f",), batches[step + len(coming)])))
        model(coming.pop(0)).square().sum().backward()


def outcome(model: EmbeddingCollection) -> str:
    """A checksum of all rows and their state."""
    weights, states = hashlib.sha256(), hashlib.sha256()
    for rows in model.blocks("t"):
        weights.update(rows.weights)
        states.update(rows.states["sum"])
    return weights.hexdigest() + states.hexdigest()


def peak() -> int:
    """Bytes, the most this process held since the last reset."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def measure() -> None:
    """What the other process does: train on disk, and print the memory that took and the outcome."""
    warm = collection(4 * BATCH, 3 << 20)
    train(warm, 4 * BATCH, 5)  # compiles kernels
    outcome(warm)
    del warm
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    model = collection(ROWS, BUDGET)
    train(model, ROWS, STEPS)
    print(outcome(model), peak() - before, model.disk_bytes())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of a process")
def test_a_table_of_three_budgets() -> None:
    model = collection(ROWS, None)
    train(model, ROWS, STEPS)
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, resident, disk = done.stdout.split()
    assert found == outcome(model)
    assert int(resident) < 1.1 * BUDGET + ELSEWHERE < model.bytes() / 2
    assert int(disk) > BUDGET  # so much had to leave


if __name__ == "__main__":
    measure()
