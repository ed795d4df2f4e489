"""HashIndex against numba.typed.Dict and a Python dict: 64-bit keys found and inserted, in million keys a second.

Run on a quiet machine: `python benchmarks/hashindex.py` (1 M and 50 M keys), or with `--keys 10000000` for one size.
All sides get the same random keys in one process. Keys are inserted into an empty table, which grows, in batches of
200,000; `pause` is the longest that one batch took, in milliseconds. Find asks present keys in random order (`hit`)
and absent ones (`miss`). `roofline` is the share of the rate at which the same threads read cache lines at random
from an array as large as the index, measured in the same run. A peer that would need more than half of the free
memory gets fewer keys, as the table says. The table goes to standard error, JSON to standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numba as nb
import numpy as np

from lanner.hashindex import HashIndex
from lanner.kernels import memory, parallel

GOALS = {"insert": 10.0, "hit": 50.0}
BATCH = 200_000
RATES = "insert", "hit", "miss"


class Subject(NamedTuple):
    """An empty table: `insert` numbers keys from a first row on, `find` gives their rows (-1: absent).

    It is made with the array that `find` may write to, so that no side pays for fresh memory there.
    """

    insert: Callable[[Any, int], object]
    find: Callable[[Any], Any]
    prepare: Callable[[np.ndarray], Any] = np.ascontiguousarray  # keys in the form that suits it, made beforehand
    nbytes: Callable[[], int] = lambda: 0


def hash_index(out: np.ndarray) -> Subject:
    index = HashIndex()

    def insert(keys: np.ndarray, row: int) -> int:
        return index.insert(keys, np.arange(row, row + len(keys)))

    return Subject(insert, lambda keys: index.find(keys, out), nbytes=lambda: index.nbytes)


@nb.njit(nogil=True)
def _typed_insert(table: Any, keys: np.ndarray, row: int) -> None:
    for i in range(keys.shape[0]):
        table[keys[i]] = row + i


@nb.njit(nogil=True)
def _typed_find(table: Any, keys: np.ndarray, out: np.ndarray) -> np.ndarray:
    for i in range(keys.shape[0]):
        out[i] = table.get(keys[i], -1)
    return out


def typed_dict(out: np.ndarray) -> Subject:
    table = nb.typed.Dict.empty(nb.int64, nb.int64)
    return Subject(lambda keys, row: _typed_insert(table, keys, row), lambda keys: _typed_find(table, keys, out))


def python_dict(_out: np.ndarray) -> Subject:
    table: dict[int, int] = {}

    def insert(keys: list[int], row: int) -> None:
        for at, key in enumerate(keys, start=row):
            table[key] = at

    return Subject(insert, lambda keys: [table.get(key, -1) for key in keys], np.ndarray.tolist)


SUBJECTS = {"HashIndex": (hash_index, 0), "numba.typed.Dict": (typed_dict, 110), "dict": (python_dict, 220)}
"""How each table is made, and the bytes a key that a peer holds while it grows."""


@nb.njit(nogil=True)
def _read_lines(begin: int, end: int, words: np.ndarray, at: np.ndarray, out: np.ndarray) -> None:
    for i in range(begin, end):
        out[i] = words[at[i]]


def line_rate(nbytes: int, count: int) -> float:
    """Million cache lines a second that the kernel threads read at random from an array of `nbytes`, best of 5."""
    words, out = memory.zeros(nbytes // 8, np.int64), np.empty(count, np.int64)
    words.fill(1)
    at = np.random.default_rng(1).integers(0, nbytes // memory.LINE, count) * (memory.LINE // 8)
    _read_lines(0, 1, words, at, out)
    return count / min(seconds(parallel.run, _read_lines, count, words, at, out)[0] for _ in range(5)) / 1e6


def seconds(action: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = action(*args)
    return time.perf_counter() - start, result


def measure(make: Callable[[np.ndarray], Subject], keys: np.ndarray, asked: int, repeats: int) -> dict[str, float]:
    """Best rates in million keys a second, and the longest pause in milliseconds, least of `repeats` fillings."""
    random, pauses, totals, out = np.random.default_rng(2), [], [], np.empty(asked, np.int64)
    subject = make(out)
    for begin in range(0, 1000, 100):  # compiles whatever growing needs
        subject.insert(subject.prepare(keys[begin : begin + 100]), begin)
    for _ in range(repeats):
        subject = make(out)
        taken = []
        for begin in range(0, len(keys), BATCH):
            batch = subject.prepare(keys[begin : begin + BATCH])
            taken.append(seconds(subject.insert, batch, begin)[0])
        pauses.append(max(taken))
        totals.append(sum(taken))
    places = random.integers(0, len(keys), asked)
    questions = {"hit": keys[places], "miss": random.integers(-(2**63), 2**63 - 1, asked)}
    answers = {"hit": places, "miss": np.full(asked, -1)}
    figures = {"keys": float(len(keys)), "insert": len(keys) / min(totals) / 1e6, "pause": min(pauses) * 1e3}
    for name, question in questions.items():
        prepared = subject.prepare(question)
        found = [seconds(subject.find, prepared) for _ in range(2 * repeats)]
        assert np.array_equal(found[0][1], answers[name])
        figures[name] = asked / min(spent for spent, _ in found) / 1e6
    return figures | {"bytes a key": subject.nbytes() / len(keys)}


def affordable(count: int, bytes_each: int) -> int:
    """Keys, at most `count`, that take half of the free memory at most."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(count, free // 2 // bytes_each) if bytes_each else count


def line(name: str, figures: dict[str, float], mine: dict[str, float], lines: float) -> str:
    shown = "  ".join(f"{what} {figures[what]:6.1f} ({mine[what] / figures[what]:5.1f}x)" for what in RATES)
    shown += f"  pause {figures['pause']:7.1f} ms ({figures['pause'] / mine['pause']:5.1f}x)"
    share = f"  roofline hit {figures['hit'] / lines:.0%} miss {figures['miss'] / lines:.0%}" if figures is mine else ""
    return f"{name:16} {int(figures['keys']):>11,} keys  {shown}{share}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000_000, 50_000_000])
    parser.add_argument("--asked", type=int, default=4_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="without the peers")
    given = parser.parse_args()
    document: dict[str, Any] = {"threads": parallel.threads(), "batch": BATCH, "goals": GOALS, "sizes": []}
    for count in given.keys:
        keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, count)
        results: dict[str, dict[str, float]] = {}
        for name, (make, bytes_each) in SUBJECTS.items():
            if bytes_each and given.alone:
                continue
            repeats = 1 if bytes_each else given.repeats
            results[name] = measure(make, keys[: affordable(count, bytes_each)], given.asked, repeats)
            mine = results["HashIndex"]
            if not bytes_each:
                mine["lines"] = line_rate(int(mine["bytes a key"] * count), given.asked)
            print(line(name, results[name], mine, mine["lines"]), file=sys.stderr, flush=True)
        met = {what: mine[what] >= goal for what, goal in GOALS.items()}
        document["sizes"].append({"million_per_second": results, "met": met})
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
