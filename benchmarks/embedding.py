"""Embedding lookup and training step: Lanner against FBGEMM's CPU engine and torch.nn.EmbeddingBag.

    python benchmarks/embedding.py                 # 26 tables x 100,000 rows x 64, batch 8,192, 1 and 10 ids a bag
    python benchmarks/embedding.py --shape large   # 2 tables x 5,000,000 rows: far above the last-level cache

All engines run in one process and take turns, so that a busy machine hits them alike; each line gives the best and
the median of the rounds, and how many times as long the peer took. A step is forward, backward and optimizer, through
the public module, memory for the output included. Ids are uniform, and power-law: the probability of the n-th most
frequent id of a table falls with n^-1.05. `roofline` is what must move at least (rows, state, output, gradient, ids)
by the time, as a share of the copy bandwidth measured in the same run; rows found in cache can carry it past 100 %.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import torch
from _rig import copy_bandwidth, draw, rounds_of
from torch import Tensor, nn

from lanner.data.batch import Bags
from lanner.embedding import SGD, Adagrad, EmbeddingCollection, FeatureConfig, Optimizer, RowWiseAdagrad, TableConfig
from lanner.kernels import parallel

try:
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )
except (ImportError, OSError):
    SplitTableBatchedEmbeddingBagsCodegen = None

LR, EPS = 0.01, 1e-8


@dataclass(frozen=True)
class Shape:
    """What is looked up."""

    tables: int
    rows: int
    dim: int = 64
    batch: int = 8192

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"f{index}" for index in range(self.tables))


SHAPES = {"criteo": Shape(26, 100_000), "large": Shape(2, 5_000_000), "small": Shape(4, 1000, 16, 256)}


@dataclass
class Engine:
    """One way to do the work; `step` is None where the engine has no such optimizer."""

    name: str
    forward: Callable[[], Tensor]
    step: Callable[[], None]


def lanner_engine(shape: Shape, optimizer: Optimizer, bags: Bags, gradient: Tensor) -> Engine:
    tables = [TableConfig(name, shape.rows, shape.dim) for name in shape.names]
    collection = EmbeddingCollection(tables, [FeatureConfig(name, name) for name in shape.names], optimizer)

    def forward() -> Tensor:
        with torch.no_grad():
            out: Tensor = collection(bags)
        return out

    return Engine("lanner", forward, lambda: collection(bags).backward(gradient))


def fbgemm_engine(shape: Shape, optimizer: Optimizer, bags: Bags, gradient: Tensor) -> Engine:
    kinds = {
        SGD: EmbOptimType.EXACT_SGD,
        Adagrad: EmbOptimType.EXACT_ADAGRAD,
        RowWiseAdagrad: EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    }
    engine = SplitTableBatchedEmbeddingBagsCodegen(
        [(shape.rows, shape.dim, EmbeddingLocation.HOST, ComputeDevice.CPU)] * shape.tables,
        optimizer=kinds[type(optimizer)],
        learning_rate=LR,
        eps=EPS,
        pooling_mode=PoolingMode.SUM,
        device=torch.device("cpu"),
    )
    offsets = torch.arange(bags.values.numel() + 1) if bags.offsets is None else bags.offsets

    def forward() -> Tensor:
        with torch.no_grad():
            out: Tensor = engine(bags.values, offsets)
        return out

    return Engine("fbgemm", forward, lambda: engine(bags.values, offsets).backward(gradient))


def torch_engine(shape: Shape, optimizer: Optimizer, bags: Bags, gradient: Tensor) -> Engine | None:
    if isinstance(optimizer, RowWiseAdagrad):
        return None
    tables = nn.ModuleList(nn.EmbeddingBag(shape.rows, shape.dim, mode="sum", sparse=True) for _ in shape.names)
    kind = torch.optim.Adagrad if isinstance(optimizer, Adagrad) else torch.optim.SGD
    stepper = kind(tables.parameters(), lr=LR)
    warnings.filterwarnings("ignore", "Sparse invariant checks")
    ids = bags.values.view(shape.tables, -1)
    offsets = torch.arange(0, ids.shape[1], ids.shape[1] // shape.batch)

    def run() -> Tensor:
        return torch.cat([table(ids[index], offsets) for index, table in enumerate(tables)], dim=1)

    def forward() -> Tensor:
        with torch.no_grad():
            return run()

    def step() -> None:
        stepper.zero_grad()
        run().backward(gradient)
        stepper.step()

    return Engine("torch", forward, step)


def least_bytes(shape: Shape, bags: Bags, optimizer: Optimizer, step: bool) -> int:
    """Bytes that a forward, or a whole step, must move at least."""
    row, ids = shape.dim * 4, bags.values.numel()
    output = shape.tables * shape.batch * row
    moved = ids * (row + 8) + output
    if step:
        distinct = sum(torch.unique(part).numel() for part in bags.values.view(shape.tables, -1))
        state = {SGD: 0, RowWiseAdagrad: 4, Adagrad: row}[type(optimizer)]
        moved += output + ids * 8 + 2 * distinct * (row + state)
    return moved


def measure(
    shape: Shape,
    hotness: int,
    ids: str,
    optimizer: Optimizer,
    rounds: int,
    peers: list[str],
    clock: Callable[[], float],
) -> list[dict[str, object]]:
    """Forward and step of all engines."""
    random = torch.Generator().manual_seed(0)
    values = torch.from_numpy(draw(ids, shape.rows, (shape.tables, shape.batch * hotness))).view(-1)
    offsets = None if hotness == 1 else torch.arange(0, values.numel() + 1, hotness)
    bags = Bags(shape.names, values, offsets)
    gradient = torch.randn(shape.batch, shape.tables * shape.dim, generator=random) * 1e-3
    makers = {"fbgemm": fbgemm_engine, "torch": torch_engine}
    engines = [lanner_engine(shape, optimizer, bags, gradient)]
    engines += [e for name in peers if (e := makers[name](shape, optimizer, bags, gradient))]
    bandwidth, results = copy_bandwidth(), []
    for work in ("forward", "step"):
        times = rounds_of({engine.name: getattr(engine, work) for engine in engines}, rounds, clock)
        moved = least_bytes(shape, bags, optimizer, work == "step")
        for name, taken in times.items():
            result: dict[str, object] = {
                "work": work, "hotness": hotness, "ids": ids, "optimizer": type(optimizer).__name__, "engine": name,
                "best_ms": min(taken), "median_ms": statistics.median(taken),
                "ratio_best": min(taken) / min(times["lanner"]),
                "ratio_median": statistics.median(taken) / statistics.median(times["lanner"]),
                "roofline": moved / min(taken) * 1e3 / bandwidth,
                "million_ids_per_second": values.numel() / min(taken) / 1e3,
            }  # fmt: skip
            results.append(result)
    return results


def line(result: dict[str, object]) -> str:
    title = f"{result['hotness']:>2}-hot {result['ids']:<9} {result['work']:<7} {result['optimizer']:<14}"
    title += f" {result['engine']:<6}"
    return (
        f"{title} best {result['best_ms']:8.2f} ms  median {result['median_ms']:8.2f} ms  "
        f"{result['ratio_best']:6.2f}x {result['ratio_median']:6.2f}x  "
        f"{result['million_ids_per_second']:6.1f} M ids/s  roofline {result['roofline']:5.0%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="criteo")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--hotness", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--ids", nargs="+", choices=["uniform", "power-law"], default=["uniform", "power-law"])
    parser.add_argument("--optimizers", nargs="+", default=["RowWiseAdagrad", "Adagrad", "SGD"])
    parser.add_argument("--peers", nargs="*", default=["fbgemm", "torch"])
    parser.add_argument("--one-thread", action="store_true", help="one thread each, CPU time: for a busy machine")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.one_thread:
        os.environ["LANNER_THREADS"] = "1"
        torch.set_num_threads(1)
    clock = time.process_time if options.one_thread else time.perf_counter
    if "fbgemm" in options.peers and SplitTableBatchedEmbeddingBagsCodegen is None:
        print("fbgemm is left out: it cannot be imported (pip install fbgemm-gpu-cpu==1.8.0 fits torch 2.13)")
        options.peers.remove("fbgemm")
    optimizers = {"SGD": SGD(LR), "Adagrad": Adagrad(LR, EPS), "RowWiseAdagrad": RowWiseAdagrad(LR, EPS)}
    shape = SHAPES[options.shape]
    if not options.json:
        print(f"{shape}, {parallel.threads()} threads; copy bandwidth {copy_bandwidth() / 1e9:.1f} GB/s")
    for hotness, ids, name in itertools.product(options.hotness, options.ids, options.optimizers):
        for result in measure(shape, hotness, ids, optimizers[name], options.rounds, options.peers, clock):
            print(json.dumps(result) if options.json else line(result), flush=True)


if __name__ == "__main__":
    main()
