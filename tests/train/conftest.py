"""Fixtures of the training tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lanner.data import Dataset

sys.path.insert(0, str(Path(__file__).parent))  # the tests share `train_datasets`

from train_datasets import random_rows, schema, write


@pytest.fixture
def dataset(tmp_path: Path) -> Callable[..., Dataset]:
    """A dataset with splits of the given numbers of rows."""

    def make(train: int = 600, valid: int = 0, test: int = 300, **options: Any) -> Dataset:
        of = schema(**options)
        sizes = {"train": train, "valid": valid, "test": test}
        rows = {name: random_rows(size, of, seed) for seed, (name, size) in enumerate(sizes.items()) if size}
        return write(tmp_path / "data", of, **rows)

    return make
