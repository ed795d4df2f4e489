"""HashIndex against a Python dict and numba.typed.Dict: find and insert of 64-bit keys, in million keys a second.

Run on a quiet machine: `python benchmarks/hashindex.py --keys 10000000`. All sides get the same random keys in one
process; find asks keys that are there, in random order; insert starts from an empty index and grows. Prints a table
to standard error and JSON to standard output.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numba as nb
import numpy as np

from lanner.hashindex import HashIndex
from lanner.kernels.parallel import threads

GOALS = {"find": 50.0, "insert": 10.0}


def best(action: Callable[[], Any], repeats: int) -> float:
    """Least seconds of `repeats` calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


@nb.njit
def _typed_insert(table: Any, keys: np.ndarray) -> None:
    for row in range(keys.shape[0]):
        table[keys[row]] = row


@nb.njit
def _typed_find(table: Any, keys: np.ndarray, out: np.ndarray) -> None:
    for i in range(keys.shape[0]):
        out[i] = table.get(keys[i], -1)


def ours(keys: np.ndarray, asked: np.ndarray, absent: np.ndarray, repeats: int) -> dict[str, float]:
    rows, out = np.arange(len(keys)), np.empty(len(asked), np.int64)
    HashIndex().insert(keys[:100], rows[:100])  # compile
    index = HashIndex()

    def insert() -> None:
        nonlocal index
        index = HashIndex()
        index.insert(keys, rows)

    inserted = best(insert, repeats)
    index.find(asked[:100])
    found = best(lambda: index.find(asked, out), 3 * repeats)
    assert np.array_equal(keys[out], asked)
    missed = best(lambda: index.find(absent, out), 3 * repeats)
    assert out.max() == -1
    erased = best(lambda: index.erase(asked[: len(asked) // 10]), 1)
    return {
        "insert": len(keys) / inserted / 1e6,
        "find": len(asked) / found / 1e6,
        "find absent": len(asked) / missed / 1e6,
        "erase": len(asked) / 10 / erased / 1e6,
        "bytes a key": index.nbytes / len(keys),
    }


def python_dict(keys: np.ndarray, asked: np.ndarray) -> dict[str, float]:
    listed, wanted = keys.tolist(), asked.tolist()
    table: dict[int, int] = {}

    def insert() -> None:
        for row, key in enumerate(listed):
            table[key] = row

    inserted = best(insert, 1)
    found = best(lambda: [table.get(key, -1) for key in wanted], 1)
    return {"insert": len(keys) / inserted / 1e6, "find": len(asked) / found / 1e6}


def typed_dict(keys: np.ndarray, asked: np.ndarray) -> dict[str, float]:
    out = np.empty(len(asked), np.int64)

    def fresh() -> Any:
        return nb.typed.Dict.empty(nb.int64, nb.int64)

    _typed_insert(fresh(), keys[:100])
    table = fresh()
    inserted = best(lambda: _typed_insert(table, keys), 1)
    _typed_find(table, asked[:100], out)
    found = best(lambda: _typed_find(table, asked, out), 1)
    return {"insert": len(keys) / inserted / 1e6, "find": len(asked) / found / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--asked", type=int, default=4_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    random = np.random.default_rng(0)
    keys = random.integers(-(2**63), 2**63 - 1, given.keys)
    asked = keys[random.integers(0, len(keys), given.asked)]
    absent = random.integers(-(2**63), 2**63 - 1, given.asked)
    result = {
        "lanner HashIndex": ours(keys, asked, absent, given.repeats),
        "numba.typed.Dict": typed_dict(keys, asked),
        "dict": python_dict(keys, asked),
    }
    mine = result["lanner HashIndex"]
    for name, figures in result.items():
        shown = ", ".join(f"{what} {value:.1f}" for what, value in figures.items())
        ratios = ", ".join(f"{what} {mine[what] / figures[what]:.0f}x" for what in GOALS)
        print(f"{name:18} {shown}   (HashIndex is {ratios})", file=sys.stderr)
    met = {what: mine[what] >= goal for what, goal in GOALS.items()}
    document = {"keys": given.keys, "threads": threads(), "million_per_second": result, "goals": GOALS, "met": met}
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
