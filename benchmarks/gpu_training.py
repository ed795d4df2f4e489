"""DLRM training on one card: from disk through `Trainer.fit`, and its steps alone, against plain PyTorch on the card.

    python benchmarks/gpu_training.py              # a minute or two; a table, and gpu_training.json in --out
    python benchmarks/gpu_training.py --dry-run    # tiny, in Triton's interpreter: shows that all runs

Work: 26 tables x 250,000 rows x 128, bottom 13-512-256-128, top 1024-1024-512-256-1, batch 65,536, one id a feature,
uniform ids, SGD. Steps take 4 batches in turn: ours lie in host memory, as the loader gives them, and are checked and
copied in each step; the peer's lie on the card.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

if "--dry-run" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import torch
from training import DENSE, TABLES, write_data
from training_peer import PlainDLRM, train_steps

from lanner.data import Batch, Dataset, Loader
from lanner.embedding import SGD, EmbeddingCollection
from lanner.models import DLRM
from lanner.train import Trainer


@dataclass(frozen=True)
class Work:
    """What is trained, and how often."""

    table_rows: int
    dim: int
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    batch: int
    steps: int
    device: str


CARD = Work(250_000, 128, (512, 256, 128), (1024, 1024, 512, 256, 1), 65_536, 30, "cuda")
TINY = Work(50, 4, (8, 4), (8, 1), 16, 2, "cpu")
BATCHES = 4


def trainer_of(work: Work, dataset: Dataset, precision: str) -> Trainer:
    """A trainer of a fresh model, with the GPU's kernels."""
    model = DLRM(dataset.schema, dim=work.dim, bottom=work.bottom, top=work.top)
    if work.device == "cpu":
        model.embedding = EmbeddingCollection.from_schema(dataset.schema, work.dim, backend="gpu")
    optimizers = {"embedding_optimizer": SGD(0.1), "dense_optimizer": SGD(0.1)}
    options = {"device": work.device, "precision": precision, "quiet": True, "max_steps": work.steps, "epochs": 1000}
    return Trainer(model, batch_size=work.batch, **optimizers, **options)


def from_disk(trainer: Trainer, dataset: Dataset) -> float:
    """Samples a second of `fit`; kernels are compiled before."""
    return float(trainer.fit(dataset.train)["samples_per_second"])


def steps_alone(trainer: Trainer, batches: list[Batch], work: Work) -> float:
    """Samples a second of the trainer's steps."""
    trainer.model.train()
    trainer.step(batches[0], 1.0)
    start = time.perf_counter()
    for batch in islice(cycle(batches), work.steps):
        trainer.step(batch, 1.0)
    finish(work)
    return work.steps * work.batch / (time.perf_counter() - start)


def plain_pytorch(batches: list[Batch], work: Work) -> float:
    """Samples a second of the peer's steps."""
    model = PlainDLRM([work.table_rows] * TABLES, work.dim, [DENSE, *work.bottom], list(work.top)).to(work.device)
    model.left, model.right = model.left.to(work.device), model.right.to(work.device)
    offsets = torch.arange(work.batch).repeat(TABLES, 1)
    rows = [(b.dense, offsets, b.bags.values.long().view(TABLES, -1), b.labels) for b in batches]
    there = cycle([tuple(tensor.to(work.device) for tensor in row) for row in rows])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_steps(model, optimizer, there, 2)
    start = time.perf_counter()
    trained = train_steps(model, optimizer, there, work.steps)
    finish(work)
    return trained / (time.perf_counter() - start)


def finish(work: Work) -> None:
    if work.device == "cuda":
        torch.cuda.synchronize()


def measure(work: Work, dataset: Dataset) -> dict[str, float]:
    """Samples a second by what was done."""
    batches = list(islice(Loader(dataset.train, work.batch).epoch(0), BATCHES))
    found = {}
    for precision in ("fp32", "bf16"):
        trainer = trainer_of(work, dataset, precision)
        found[f"Lanner, steps, {precision}"] = steps_alone(trainer, batches, work)
        found[f"Lanner, from disk, {precision}"] = from_disk(trainer, dataset)
        del trainer
    found["PyTorch, steps, fp32"] = plain_pytorch(batches, work)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "gpu-results")))
    options = parser.parse_args()
    work = TINY if options.dry_run else CARD
    if work.device == "cuda" and not torch.cuda.is_available():
        print("there is no CUDA device here; --dry-run trains a tiny model in Triton's interpreter")
        return
    with tempfile.TemporaryDirectory(prefix="lanner-benchmark-") as folder:
        dataset, _ = write_data(Path(folder), work.batch * 16, work.table_rows)
        found = measure(work, dataset)
    about: dict[str, Any] = {"device": torch.cuda.get_device_name() if work.device == "cuda" else "interpreter"}
    print(f"{about['device']}, batch {work.batch:,}; samples/s")
    for name, speed in found.items():
        print(f"  {name:<26} {speed:12,.0f}")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu_training.json").write_text(json.dumps({**about, "samples_per_second": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
