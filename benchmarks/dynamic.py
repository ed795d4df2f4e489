"""A dynamic table against a static one of the same size: forward and training step, and what growing costs.

    python benchmarks/dynamic.py                        # 10 M keys x 32, batch 65,536, 1 id a sample
    python benchmarks/dynamic.py --keys 1000000 --hotness 10

Both hold the same number of rows, are asked at the same places and take turns in one process. `share` is the static
table's time as a share of the dynamic one's; the goals are 85 % of a training step and 65 % of a forward. Then an
empty table meets batches of new keys only: `longest` is the slowest step, growth of index and rows included, `usual`
the median one. JSON goes to standard output, the table to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import numpy as np
import torch
from _rig import draw, rounds_of

from lanner.data.batch import Bags
from lanner.embedding import EmbeddingCollection, FeatureConfig, RowWiseAdagrad, TableConfig
from lanner.kernels import parallel

GOALS = {"step": 0.85, "forward": 0.65}


def collection_of(rows: int | str, dim: int) -> EmbeddingCollection:
    """One table, one feature."""
    table = TableConfig("table", rows, dim)  # type: ignore[arg-type]
    return EmbeddingCollection([table], [FeatureConfig("table", "table")], RowWiseAdagrad(0.01))


def bags_of(ids: np.ndarray, hotness: int) -> Bags:
    values = torch.from_numpy(ids)
    return Bags(("table",), values, None if hotness == 1 else torch.arange(0, len(ids) + 1, hotness))


def actions(collection: EmbeddingCollection, bags: Bags, gradient: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Forward as in evaluation, and a training step."""

    def forward() -> None:
        with torch.no_grad():
            collection(bags)

    return {"forward": forward, "step": lambda: collection(bags).backward(gradient)}


def compare(keys: np.ndarray, dim: int, batch: int, hotness: int, ids: str, rounds: int) -> dict[str, float]:
    """Best milliseconds of both tables, and shares."""
    places = draw(ids, len(keys), (batch * hotness,))
    gradient = torch.randn(batch, dim, generator=torch.Generator().manual_seed(0)) * 1e-3
    static, dynamic = collection_of(len(keys), dim), collection_of("dynamic", dim)
    for begin in range(0, len(keys), 1 << 20):
        part = bags_of(keys[begin : begin + (1 << 20)], 1)
        dynamic(part).backward(torch.zeros(part.batch_size, dim))
    sides = {
        "static": actions(static, bags_of(places, hotness), gradient),
        "dynamic": actions(dynamic, bags_of(keys[places], hotness), gradient),
    }
    figures = {}
    for work in GOALS:
        times = rounds_of({side: acts[work] for side, acts in sides.items()}, rounds)
        figures |= {f"{side} {work} ms": min(taken) for side, taken in times.items()}
        figures[f"{work} share"] = min(times["static"]) / min(times["dynamic"])
    return figures


def grow(keys: np.ndarray, dim: int, batch: int) -> dict[str, float]:
    """Milliseconds of the steps that fill an empty table."""
    collection, taken = collection_of("dynamic", dim), []
    for begin in range(0, len(keys) - batch + 1, batch):
        bags, gradient = bags_of(keys[begin : begin + batch], 1), torch.zeros(batch, dim)
        start = time.perf_counter()
        collection(bags).backward(gradient)
        taken.append((time.perf_counter() - start) * 1e3)
    return {
        "usual ms": statistics.median(taken),
        "longest ms": max(taken[1:]),
        "million keys a second": len(taken) * batch / sum(taken) / 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--hotness", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    keys = np.unique(np.random.default_rng(0).integers(-(2**63), 2**63 - 1, given.keys))
    np.random.default_rng(1).shuffle(keys)
    document: dict[str, object] = {**vars(given), "threads": parallel.threads(), "goals": GOALS}
    for ids in ("uniform", "power-law"):
        document[ids] = figures = compare(keys, given.dim, given.batch, given.hotness, ids, given.rounds)
        shown = "  ".join(
            f"{work}: static {figures[f'static {work} ms']:.2f} ms, dynamic {figures[f'dynamic {work} ms']:.2f} ms, "
            f"share {figures[f'{work} share']:.0%}"
            for work in GOALS
        )
        print(f"{ids:9} {shown}", file=sys.stderr, flush=True)
    document["growth"] = figures = grow(keys, given.dim, given.batch)
    print("growth    " + "  ".join(f"{name} {value:.2f}" for name, value in figures.items()), file=sys.stderr)
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
