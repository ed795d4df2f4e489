"""Recipes trained in any number of processes, and how their results are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lanner.train.recipe import parse
from lanner.train.run import train

Recipe = dict[str, Any]
MODEL = {"name": "dlrm", "dim": 8, "bottom": [8], "top": [16, 1]}


def plan(ranks: int, *kinds: str) -> dict[str, Any]:
    """Table ck is placed as kinds[k] says."""
    everyone = list(range(ranks))
    halves = [everyone[: ranks // 2], everyone[ranks // 2 :]]
    places = {"data": {}, "table": {"ranks": [ranks - 1]}, "two-level": {"ranks": halves}}
    tables = {f"c{k}": {"kind": kind, **places.get(kind, {"ranks": everyone})} for k, kind in enumerate(kinds)}
    return {"version": 1, "world_size": ranks, "tables": tables}


def result_of(values: Recipe) -> Recipe:
    """What training gives, and for each step the records in the run directory."""
    result = train(parse(values), quiet=True)
    lines = Path(values["out"], "metrics.jsonl").read_text().splitlines()
    return {**result, "records": [json.loads(line) for line in lines]}


def results_of(rank: int, recipes: list[Recipe]) -> list[Recipe]:
    return [result_of(each) for each in recipes]


def require_same(found: Any, expected: Any, tolerance: float = 1e-5, where: str = "result") -> None:
    """Equal but for rounding, and the speed."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key in expected.keys() - {"samples_per_second", "bytes"}:
            require_same(found[key], expected[key], tolerance, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            require_same(one, other, tolerance, f"{where}[{number}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=tolerance, abs=tolerance), where
    else:
        assert found == expected, where
