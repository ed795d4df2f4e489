"""Fixtures every room's tests share."""

from __future__ import annotations

import os
from pathlib import Path

# Idle OpenMP threads sleep: spinning ones starve the kernels' own threads on small machines.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of small real data sets beside the repository; tests that need it skip without it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the real data samples are not at {folder}")
    return folder
