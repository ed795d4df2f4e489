"""Training a table three times larger than its memory budget, against the same table all in memory.

    python benchmarks/backed.py                              # 512 MiB for 1.5 GiB of rows with their state
    python benchmarks/backed.py --memory "2 GiB" --directory /fast/disk

Each side runs in a fresh process: every row is trained once, so that all of them are on disk, then `--steps` batches
of uniform and of power-law ids are timed, prepared two batches ahead as the trainer does. `resident` is the most memory
that the process held beyond what it had before the table was made, rows and everything else, which is to stay near the
budget. The page cache of the system, which is not the process's, may hold the file: drop it, or take a table larger
than the machine's memory, to see the disk alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import torch
from _rig import draw

from lanner.data.batch import Bags
from lanner.embedding import Adagrad, Backing, EmbeddingCollection, FeatureConfig, TableConfig
from lanner.quantities import bytes_text, parse_amount

_DIM = 32
_ROW = _DIM * (4 + 4)  # bytes of weights and Adagrad's state


def main() -> None:
    given = _arguments()
    if given.side:
        print(json.dumps(_measure(given, on_disk=given.side == "disk")))
        return
    disk, memory = (_in_process(side) for side in ("disk", "memory"))
    budget = parse_amount(given.memory, "--memory")
    print(f"{_rows(given):,} rows x {_DIM}, Adagrad, {bytes_text(_rows(given) * _ROW)}, budget {bytes_text(budget)}")
    print(f"resident: {bytes_text(disk['resident'])}, / budget {disk['resident'] / budget:.2f}")
    print(f"resident all in memory: {bytes_text(memory['resident'])}")
    for kind in ("uniform", "power-law"):
        ours, theirs = disk[kind]["ids"], memory[kind]["ids"]
        hits = 1 - disk[kind]["misses"] / disk[kind]["lookups"]
        print(f"{kind}: {ours:,.0f} ids/s, {theirs:,.0f} all in memory, {ours / theirs:.2f}, hits {hits:.1%}")


def _in_process(side: str) -> dict[str, Any]:
    command = [sys.executable, __file__, *sys.argv[1:], "--side", side]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


def _measure(given: argparse.Namespace, on_disk: bool) -> dict[str, Any]:
    warm = _collection(4 * given.batch, Backing(given.batch * 1000) if on_disk else None)
    _train(warm, [draw("uniform", 4 * given.batch, (given.batch,))] * 3)  # compiles kernels
    del warm
    rows, found = _rows(given), {}
    ids = {kind: draw(kind, rows, (given.steps, given.batch)) for kind in ("uniform", "power-law")}
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _peak()
    collection = _collection(rows, Backing(given.memory, given.directory) if on_disk else None)
    _train(collection, (torch.arange(at, min(at + given.batch, rows)) for at in range(0, rows, given.batch)))
    for kind, batches in ids.items():
        _train(collection, batches[: given.steps // 2])  # until the rows in memory are those of such ids
        counted, start = _traffic(collection), time.perf_counter()
        _train(collection, batches[given.steps // 2 :])
        seconds = time.perf_counter() - start
        passed = {name: now - counted[name] for name, now in _traffic(collection).items()}
        found[kind] = {"ids": batches[given.steps // 2 :].size / seconds, **passed}
    return {**found, "resident": _peak() - before}


def _collection(rows: int, backing: Backing | None) -> EmbeddingCollection:
    return EmbeddingCollection(
        [TableConfig("table", rows, _DIM)], [FeatureConfig("feature", "table")], Adagrad(0.05), backing=backing
    )


def _train(collection: EmbeddingCollection, batches: Iterable[Any]) -> None:
    coming: deque[Bags] = deque()
    for ids in batches:
        coming.append(collection.prepare(Bags(("feature",), torch.as_tensor(ids))))
        if len(coming) > collection.ahead:
            collection(coming.popleft()).square().sum().backward()
    while coming:
        collection(coming.popleft()).square().sum().backward()


def _traffic(collection: EmbeddingCollection) -> dict[str, int]:
    tables = collection.tables_on_disk.values()
    return {name: sum(getattr(table.traffic, name) for table in tables) for name in ("lookups", "misses")}


def _peak() -> int:
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def _rows(given: argparse.Namespace) -> int:
    return int(given.times * parse_amount(given.memory, "--memory")) // _ROW


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", default="512 MiB", help="the budget")
    parser.add_argument("--times", type=float, default=3.0, help="how many times larger the table is, with its state")
    parser.add_argument("--directory", help="where rows lie on disk; default: the system's temporary one")
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=200, help="of each kind of ids; the second half is timed")
    parser.add_argument("--side", choices=("disk", "memory"), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
