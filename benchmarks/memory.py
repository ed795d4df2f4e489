"""Peak memory of training one table against what `lanner plan` says.

    python benchmarks/memory.py                      # 50,000,000 rows x 32, row-wise Adagrad, batch 8,192
    python benchmarks/memory.py --rows 5000000 --optimizer Adam --dtype fp16

Each case runs in a fresh process: the table is made and trained on uniform, then on power-law ids; `peak` is the
process's largest resident memory (VmHWM), all of it. The goal is peak <= 1.2 x estimate, and an estimate that is not
far above the peak: nobody should be turned away without need.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import numpy as np
import torch

from lanner.data.batch import Bags
from lanner.embedding import EmbeddingCollection, FeatureConfig, TableConfig
from lanner.embedding.optimizers import parse
from lanner.embedding.planner import Devices, Workload, estimate
from lanner.embedding.sharding import Plan
from lanner.quantities import bytes_text


def main() -> None:
    given = _arguments()
    if given.measure:
        _train(given)
        return
    load = Workload.of(*_table(given), batch_size=given.batch)
    devices = Devices(1, memory=1, bandwidth=1.0, compute=1.0, link=1.0)
    expected = float(estimate(load, Plan.default(load.tables, 1), devices).held[0])
    command = [sys.executable, __file__, *sys.argv[1:], "--measure"]
    peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    what = f"{given.rows:,} rows x {given.dim} {given.dtype}, {given.optimizer}"
    print(f"{what}: estimate {bytes_text(expected)}, peak {bytes_text(peak)}, peak / estimate {peak / expected:.3f}")


def _train(given: argparse.Namespace) -> None:
    """Train, and print the peak of this process in bytes."""
    tables, features, optimizer = _table(given)
    collection = EmbeddingCollection(tables, features, optimizer)
    random = np.random.default_rng(0)
    for skewed in (False, True):
        for _ in range(given.steps):
            ids = random.zipf(1.1, given.batch) % given.rows if skewed else random.integers(0, given.rows, given.batch)
            collection(Bags(("feature",), torch.from_numpy(ids), None, None)).square().sum().backward()
    print(int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10)


def _table(given: argparse.Namespace) -> tuple[list[TableConfig], list[FeatureConfig], object]:
    table = TableConfig("table", given.rows, given.dim, dtype=given.dtype)
    return [table], [FeatureConfig("feature", "table")], parse({"name": given.optimizer})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=30, help="of each kind of ids")
    parser.add_argument("--dtype", default="fp32", choices=("fp32", "fp16", "bf16"))
    parser.add_argument("--optimizer", default="RowWiseAdagrad")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
