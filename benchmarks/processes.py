"""DLRM training from disk in several processes against one, with the same global batch and the same cores.

    python benchmarks/processes.py [--processes 2] [--plan row] [--rows 200000] [--steps 40] [--rounds 3]

Work: that of `benchmarks/training.py`, with row-wise Adagrad. Every round starts `torchrun` afresh for each side in
turn; the best round of each counts. The cores are split among the processes, so `ratio` says what the exchange costs
on one machine: 1 would be nothing. `ratio_per_thread` compares with one process of as many threads as each of the
several has, which is what as many machines would show if their network were as fast as this one's memory: at best the
number of processes. JSON goes to standard output, the table to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

from training import BATCH, BOTTOM, DIM, TOP, write_data

from lanner.data import Dataset
from lanner.embedding import Adagrad, RowWiseAdagrad
from lanner.kernels import parallel
from lanner.models import DLRM
from lanner.train import Trainer
from lanner.train.joining import joined


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--plan", choices=("data", "row", "column", "table"), default="row", help="of every table")
    options.add_argument("--rows", type=int, default=200_000, help="rows on disk")
    options.add_argument("--steps", type=int, default=40, help="timed steps a round")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--dataset", help=argparse.SUPPRESS)  # given to the processes that train
    given = options.parse_args()
    if given.dataset:
        train(given)
        return
    cores = parallel.threads()
    sides = {"several": (given.processes, max(cores // given.processes, 1)), "one": (1, cores)}
    sides["one, threads of each"] = (1, sides["several"][1])
    with tempfile.TemporaryDirectory(prefix="lanner-benchmark-") as folder:
        write_data(Path(folder), given.rows)
        rounds = [{name: speed(given, folder, *side) for name, side in sides.items()} for _ in range(given.rounds)]
    best = {name: max(each[name] for each in rounds) for name in sides}
    ratios = {"ratio": best["several"] / best["one"]}
    ratios["ratio_per_thread"] = best["several"] / best["one, threads of each"]
    for name, (processes, threads) in sides.items():
        print(f"{processes} processes x {threads} threads  {best[name]:9,.0f} samples/s", file=sys.stderr)
    print("  ".join(f"{name} {value:.2f}" for name, value in ratios.items()), file=sys.stderr)
    print(json.dumps({"batch": BATCH, "plan": given.plan, "samples_per_second": best, **ratios}))


def speed(given: argparse.Namespace, folder: str, processes: int, threads: int) -> float:
    """Samples/s of so many processes of so many threads each."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    work = [__file__, "--dataset", f"{folder}/data", "--plan", given.plan, "--steps", str(given.steps)]
    limits = {"LANNER_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([*launch, *work], env={**os.environ, **limits}, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def train(given: argparse.Namespace) -> None:
    """What each process does; the first one prints samples/s."""
    with joined() as processes:
        dataset, ranks = Dataset.open(given.dataset), range(processes.world_size)
        places = {
            table.name: {"kind": given.plan, "ranks": {"data": [], "table": [k % len(ranks)]}.get(given.plan, [*ranks])}
            for k, table in enumerate(dataset.schema.tables)
        }
        plan = {"version": 1, "world_size": len(ranks), "tables": places} if len(ranks) > 1 else None
        model = DLRM(dataset.schema, dim=DIM, bottom=BOTTOM, top=TOP, embedding={"plan": plan})
        options = {"batch_size": BATCH, "embedding_optimizer": RowWiseAdagrad(0.01), "dense_optimizer": Adagrad(0.01)}
        trainer = Trainer(model, **options, max_steps=given.steps + 1, quiet=True)
        result = trainer.fit(dataset.train)
        if processes.is_first:
            print(result["samples_per_second"])


if __name__ == "__main__":
    main()
