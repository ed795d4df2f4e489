"""The GPU kernels on one card: lookup, training step and key index against what its memory can do, and against peers.

    python benchmarks/gpu.py                # some minutes; a table, and gpu.json in --out
    python benchmarks/gpu.py --dry-run      # tiny shapes in Triton's interpreter, on the CPU: shows that all runs

`roofline` is what must move at least (rows, state, output, gradient, ids) by the time, as a share of the bandwidth of
a large copy on the same card. A step is forward, backward and optimizer, of 4 batches in turn. Peers, where they can be
imported: FBGEMM's GPU engine, and torch.nn.functional.embedding_bag over one joint table (forward only).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if "--dry-run" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import numpy as np
import torch
from torch import Tensor

from lanner.kernels.hashing.gpu import DeviceIndex
from lanner.kernels.layout import SUM
from lanner.kernels.lookup import lookup
from lanner.kernels.unique import unique
from lanner.kernels.update import STATES, Rule, Step, update

try:
    from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )
except (ImportError, OSError):
    SplitTableBatchedEmbeddingBagsCodegen = None

STEPS = {
    "SGD": Step(Rule.SGD, 0.01),
    "RowWiseAdagrad": Step(Rule.ROWWISE_ADAGRAD, 0.01, 1e-8),
    "Adagrad": Step(Rule.ADAGRAD, 0.01, 1e-8),
    "Adam": Step(Rule.ADAM, 0.01, 1e-8, 0.9, 0.999, 1.0),
    "Momentum": Step(Rule.MOMENTUM, 0.01, beta1=0.9),
    "Nesterov": Step(Rule.NESTEROV, 0.01, beta1=0.9),
    "RMSProp": Step(Rule.RMSPROP, 0.01, 1e-8, beta2=0.99),
    "FTRL": Step(Rule.FTRL, 0.01, 1.0, l1=1e-4, l2=1e-4),
}
STATE_FLOATS = {name: STATES[step.rule] * (name != "RowWiseAdagrad") for name, step in STEPS.items()}  # for each weight
BATCHES = 4


@dataclass(frozen=True)
class Case:
    """What is looked up: `hotness` ids a bag, uniform or (`skew`) Zipf-like."""

    tables: int
    rows: int
    dim: int
    batch: int
    hotness: int
    skew: bool = False
    dtype: str = "float32"

    @property
    def title(self) -> str:
        ids = "zipf" if self.skew else "uniform"
        return f"{self.tables} x {self.rows:,} x {self.dim} {self.dtype}, batch {self.batch}, {self.hotness}-hot {ids}"


CASES = (
    Case(26, 500_000, 128, 65_536, 1),
    Case(26, 500_000, 128, 65_536, 1, skew=True),
    Case(26, 500_000, 128, 65_536, 1, dtype="bfloat16"),
    Case(26, 1_000_000, 64, 16_384, 10),
    Case(26, 1_000_000, 64, 16_384, 10, skew=True),
    Case(100, 100_000, 16, 16_384, 1),
)
TINY = (Case(2, 50, 4, 6, 1), Case(2, 50, 4, 6, 3, skew=True, dtype="bfloat16"))


class Clock:
    """Milliseconds of calls: by events of the device, or by the wall clock without one."""

    def __init__(self, device: str, rounds: int) -> None:
        self.device, self.rounds = device, rounds

    def __call__(self, call: Callable[[int], object]) -> float:
        """The median over the rounds; `call` gets the number of the round."""
        for turn in range(min(self.rounds, 3)):
            call(turn)
        return statistics.median(self._once(call, turn) for turn in range(self.rounds))

    def _once(self, call: Callable[[int], object], turn: int) -> float:
        if self.device == "cpu":
            start = time.perf_counter()
            call(turn)
            return (time.perf_counter() - start) * 1e3
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call(turn)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)


class Problem:
    """A case on the device: joint weights, layout, batches of ids, a gradient."""

    def __init__(self, case: Case, device: str) -> None:
        random = torch.Generator(device).manual_seed(0)
        self.case, self.device, self.width = case, device, case.tables * case.dim
        self.weights = torch.randn(case.tables * case.rows, case.dim, generator=random, device=device)
        self.weights = self.weights.to(getattr(torch, case.dtype))
        lines = [(f, f * case.rows, case.rows, SUM, f * case.dim, self.width) for f in range(case.tables)]
        self.layout = np.array(lines, np.int64)
        count = case.tables * case.batch * case.hotness
        shares = torch.rand(BATCHES, count, generator=random, device=device, dtype=torch.float64)
        self.ids = ((shares**8 if case.skew else shares) * case.rows).long().clamp(max=case.rows - 1)
        self.offsets = None if case.hotness == 1 else torch.arange(0, count + 1, case.hotness, device=device)
        self.all_offsets = torch.arange(0, count + 1, case.hotness, device=device)
        self.gradient = torch.randn(case.batch * self.width, generator=random, device=device) * 1e-3
        self.out = torch.empty(case.batch * self.width, device=device)

    def forward(self, turn: int) -> bool | Tensor:
        ids, batch = self.ids[turn % BATCHES], self.case.batch
        return lookup(self.weights, self.layout, ids, self.offsets, None, batch, self.out, backend="gpu")

    def updates(self, optimizer: str) -> Callable[[int], None]:
        """Backward and optimizer step, with fresh states."""
        step = STEPS[optimizer]
        if optimizer == "RowWiseAdagrad":
            states = [torch.zeros(len(self.weights), device=self.device)]
        else:
            states = [torch.zeros(self.weights.shape, device=self.device) for _ in range(STATE_FLOATS[optimizer])]

        def run(turn: int) -> None:
            ids, batch = self.ids[turn % BATCHES], self.case.batch
            bags = self.layout, ids, self.offsets, None, batch, None
            update(self.weights, tuple(states), self.gradient, *bags, step, seed=turn, backend="gpu")

        return run

    def forward_bytes(self) -> int:
        """Bytes that a lookup must move at least."""
        row = self.case.dim * self.weights.element_size()
        return self.ids.shape[1] * (row + 8) + self.out.numel() * 4

    def update_bytes(self, optimizer: str) -> int:
        """Bytes that a backward with optimizer step must move at least."""
        keys = self.ids[0].view(self.case.tables, -1) + torch.arange(self.case.tables, device=self.device)[:, None] * (
            self.case.rows
        )
        distinct, state = len(torch.unique(keys)), STATE_FLOATS[optimizer] * self.case.dim * 4
        state += 4 * (optimizer == "RowWiseAdagrad")
        row = self.case.dim * self.weights.element_size()
        return self.ids.shape[1] * 8 + self.gradient.numel() * 4 + 2 * distinct * (row + state)


def copy_bandwidth(device: str, clock: Clock) -> float:
    """Bytes read and written a second by a large copy."""
    source = torch.zeros(1 << (28 if device == "cuda" else 16), device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() * 4 / clock(lambda _: target.copy_(source)) * 1e3


def peer_forward(problem: Problem) -> Callable[[int], Tensor]:
    """torch's embedding_bag over one joint table."""
    case = problem.case
    shifts = torch.arange(case.tables, device=problem.device).repeat_interleave(case.batch * case.hotness) * case.rows
    joint = problem.ids + shifts
    starts = problem.all_offsets[:-1]
    bag = torch.nn.functional.embedding_bag
    return lambda turn: bag(joint[turn % BATCHES], problem.weights, starts, mode="sum")


def fbgemm(problem: Problem, optimizer: str) -> tuple[Callable[[int], Any], Callable[[int], Any]] | None:
    """Forward and step of FBGEMM's engine, where it has the optimizer."""
    if SplitTableBatchedEmbeddingBagsCodegen is None or problem.device == "cpu":
        return None
    kinds = {
        "SGD": EmbOptimType.EXACT_SGD,
        "RowWiseAdagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        "Adagrad": EmbOptimType.EXACT_ADAGRAD,
        "Adam": EmbOptimType.ADAM,
    }
    if optimizer not in kinds:
        return None
    case = problem.case
    engine = SplitTableBatchedEmbeddingBagsCodegen(
        [(case.rows, case.dim, EmbeddingLocation.DEVICE, ComputeDevice.CUDA)] * case.tables,
        optimizer=kinds[optimizer],
        learning_rate=0.01,
        pooling_mode=PoolingMode.SUM,
        weights_precision=SparseType.FP32 if case.dtype == "float32" else SparseType.BF16,
        device=torch.device("cuda"),
    )
    gradient = problem.gradient.view(case.batch, -1)

    def forward(turn: int) -> Tensor:
        return engine(problem.ids[turn % BATCHES], problem.all_offsets)

    return forward, lambda turn: forward(turn).float().backward(gradient)


def embedding_results(case: Case, device: str, clock: Clock, bandwidth: float) -> list[dict[str, Any]]:
    """Lookup and steps of one case, ours and the peers'."""
    problem, results = Problem(case, device), []

    def note(work: str, engine: str, call: Callable[[int], object], least: int) -> None:
        try:
            taken = clock(call)
        except Exception as error:  # a peer may lack a format: say so and go on
            if engine == "lanner":
                raise
            print(f"{work} {engine}: left out, {str(error).splitlines()[0]}", file=sys.stderr)
            return
        results.append(
            {
                "case": case.title,
                "work": work,
                "engine": engine,
                "ms": taken,
                "roofline": least / taken * 1e3 / bandwidth,
            }
        )

    note("lookup", "lanner", problem.forward, problem.forward_bytes())
    note("lookup", "torch", peer_forward(problem), problem.forward_bytes())
    for optimizer in STEPS:
        run, least = problem.updates(optimizer), problem.update_bytes(optimizer)
        note(f"update {optimizer}", "lanner", run, least)
        both = problem.forward_bytes() + least
        note(f"step {optimizer}", "lanner", lambda turn, run=run: (problem.forward(turn), run(turn)), both)
        if peer := fbgemm(problem, optimizer):
            if optimizer == "SGD":
                note("lookup", "fbgemm", peer[0], problem.forward_bytes())
            note(f"step {optimizer}", "fbgemm", peer[1], both)
        del run, peer
    return results


def index_results(keys: int, batch: int, device: str, clock: Clock, bandwidth: float) -> list[dict[str, Any]]:
    """The key index with `keys` keys: batches of keys found, erased and inserted again, assigned; distinct ids."""
    random = torch.Generator(device).manual_seed(1)
    every = torch.randint(-(2**62), 2**62, (keys,), generator=random, device=device)
    asked = every[torch.randint(0, keys, (batch,), generator=random, device=device)]
    index, rows = DeviceIndex(device, keys), torch.arange(batch, device=device)
    index.assign(every)
    calls_of_one = min(clock.rounds, 3) + clock.rounds
    fresh = iter(torch.randint(-(2**62), 2**62, (calls_of_one, batch), generator=random, device=device))
    bounds = np.array([0, batch])
    calls: dict[str, Callable[[int], object]] = {
        "find": lambda _: index.find(asked),
        "insert, present": lambda _: index.insert(asked, rows),
        "assign, present": lambda _: index.assign(asked),
        "assign, new": lambda _: index.assign(next(fresh)),
        "erase": lambda turn: index.erase(every[turn * batch : (turn + 1) * batch]),
        "distinct": lambda _: unique(asked, bounds),
    }
    title = f"{keys:,} keys, {batch:,} a batch"
    results = []
    for work, call in calls.items():
        taken = clock(call)
        least = batch * (8 + 32 + 8)  # key, one sector of the index, row
        results.append(
            {"case": title, "work": work, "engine": "lanner", "ms": taken, "roofline": least / taken * 1e3 / bandwidth,
             "million_keys_per_second": batch / taken / 1e3}
        )  # fmt: skip
    return results


def line(result: dict[str, Any]) -> str:
    rate = f"{result['million_keys_per_second']:9,.0f} M keys/s" if "million_keys_per_second" in result else ""
    name = f"{result['work']:<22} {result['engine']:<7}"
    return f"  {name} {result['ms']:9.3f} ms  roofline {result['roofline']:6.1%} {rate}".rstrip()


def show(results: list[dict[str, Any]]) -> None:
    print(f"\n{results[0]['case']}")
    for result in results:
        print(line(result), flush=True)


def machine(device: str, bandwidth: float) -> dict[str, Any]:
    """What was measured on."""
    import triton

    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else f"interpreter on {platform.machine()}",
        "copy_gb_per_second": bandwidth / 1e9,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "fbgemm": SplitTableBatchedEmbeddingBagsCodegen is not None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "gpu-results")))
    options = parser.parse_args()
    device = "cpu" if options.dry_run else "cuda"
    if not options.dry_run and not torch.cuda.is_available():
        print("there is no CUDA device here; --dry-run runs tiny shapes in Triton's interpreter")
        return
    clock = Clock(device, 2 if options.dry_run else options.rounds)
    bandwidth = copy_bandwidth(device, clock)
    about = machine(device, bandwidth)
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    results: list[dict[str, Any]] = []
    for case in TINY if options.dry_run else CASES:
        results += (found := embedding_results(case, device, clock, bandwidth))
        show(found)
    results += (
        found := index_results(*((300, 40) if options.dry_run else (50_000_000, 1 << 20)), device, clock, bandwidth)
    )
    show(found)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu.json").write_text(json.dumps({"machine": about, "results": results}, indent=1) + "\n")
    print(f"\nwritten: {options.out / 'gpu.json'}")


if __name__ == "__main__":
    main()
