"""Writes `convention_golden.json`: two small days of logs, and what the recipes of others make of them.

Plain Python from what the recipes are known to do, without any of Lanner's code:

    python tests/prep/make_convention_golden.py
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path

NUMERIC, CATEGORICAL, THRESHOLD = 3, 2, 3
Row = list[str]


def days() -> list[list[Row]]:
    """Day 0 of 24 rows and day 1 of 9: an odd number, so that its halves differ."""
    choose = random.Random(20)
    popular = ["68fd1e64", "0000000a", "ffffffff", "05db9164", "0", "8cf07265"]
    rows = []
    for _ in range(33):
        numbers = [choose.choice(["", "-1", "0", "1", "2", "35", "4000000000"]) for _ in range(NUMERIC)]
        keys = [
            choose.choice(["", *popular[: choose.randint(1, 6)], f"{choose.getrandbits(32):08x}"]) for _ in range(2)
        ]
        rows.append([choose.choice("01"), *numbers, *keys])
    rows[3][1:4] = ["-3", "-2", "-1"]  # where logarithms end
    return [rows[:24], rows[24:]]


def nvidia(rows: list[Row]) -> tuple[list[list[float]], list[list[int]]]:
    """ln(x + 3), null after it is 0; ids 1.. by falling count of values seen THRESHOLD times, all else 0."""
    numbers = [[math.log(int(x) + 3) if x and int(x) > -3 else 0.0 for x in row[1 : 1 + NUMERIC]] for row in rows]
    columns = []
    for at in range(1 + NUMERIC, 1 + NUMERIC + CATEGORICAL):
        counts = Counter(int(row[at], 16) for row in rows if row[at])
        kept = sorted((v for v, c in counts.items() if c >= THRESHOLD), key=lambda v, n=counts: (-n[v], v))
        ids = {value: number for number, value in enumerate(kept, start=1)}
        columns.append([ids.get(int(row[at], 16), 0) if row[at] else 0 for row in rows])
    return numbers, [list(ids) for ids in zip(*columns, strict=True)]


def as_seen(rows: list[Row], first: int) -> list[list[int]]:
    """Ids from `first` on in the order of appearance, an empty cell being the value 0."""
    columns = []
    for at in range(1 + NUMERIC, 1 + NUMERIC + CATEGORICAL):
        ids: dict[int, int] = {}
        columns.append([ids.setdefault(int(row[at] or "0", 16), first + len(ids)) for row in rows])
    return [list(ids) for ids in zip(*columns, strict=True)]


def facebook(rows: list[Row]) -> tuple[list[list[float]], list[list[int]]]:
    """ln(x + 1) of values below 0 set to 0; ids from 0."""
    numbers = [[math.log(max(int(x or 0), 0) + 1) for x in row[1 : 1 + NUMERIC]] for row in rows]
    return numbers, as_seen(rows, 0)


def mlperf(rows: list[Row]) -> tuple[list[list[float]], list[list[int]]]:
    """ln(x - (minimum - 2)) with one minimum for all columns; ids from 2."""
    whole = [[int(x or 0) for x in row[1 : 1 + NUMERIC]] for row in rows]
    lowest = min(map(min, whole))
    return [[math.log(x - (lowest - 2)) for x in row] for row in whole], as_seen(rows, 2)


def main() -> None:
    first, last = days()
    halves = {
        "nvidia-dlrm": ("test", "valid", 4),
        "facebook-dlrm": ("test", "valid", 5),
        "mlperf-dlrm": ("valid", "test", 5),
    }
    golden: dict[str, object] = {"days": [["\t".join(row) for row in day] for day in (first, last)]}
    for name, recipe in (("nvidia-dlrm", nvidia), ("facebook-dlrm", facebook), ("mlperf-dlrm", mlperf)):
        numbers, ids = recipe(first + last)
        rows = [
            {"label": int(row[0]), "dense": [round(x, 9) for x in dense], "ids": found}
            for row, dense, found in zip(first + last, numbers, ids, strict=True)
        ]
        before, after, cut = halves[name]
        golden[name] = {"train": rows[:24], before: rows[24 : 24 + cut], after: rows[24 + cut :]}
    text = json.dumps(golden, indent=1)
    Path(__file__).with_name("convention_golden.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
