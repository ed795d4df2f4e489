"""DLRM training end to end from disk: Lanner against a plain PyTorch DLRM, as in facebookresearch/dlrm.

    python benchmarks/training.py [--rows 500000] [--steps 60] [--rounds 3] [--json]

Work: 26 tables x 100,000 rows x 64, bottom 13-512-256-64, top 512-256-1, batch 2,048, one id a feature, uniform ids.
The peer reads a binary file of int32 rows in order, looks up 26 `nn.EmbeddingBag(sparse=True)`, and updates with
`torch.optim.SGD` or a row-wise Adagrad on sparse gradients. Lanner reads its own dataset in shuffled order through
`Trainer.fit`. The two take turns; the best round of each counts. The last line of each block is the bound that the
matrix products alone set.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import numpy as np
import pyarrow as pa
import torch
from training_peer import PEER_OPTIMIZERS, PlainDLRM, binary_batches, train_steps

from lanner import manifest
from lanner.data import Dataset
from lanner.embedding import SGD, Adagrad, RowWiseAdagrad
from lanner.models import DLRM
from lanner.schema import Schema
from lanner.train import Trainer

TABLES, TABLE_ROWS, DIM, DENSE, BATCH = 26, 100_000, 64, 13, 2048
BOTTOM, TOP = (512, 256, 64), (512, 256, 1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=500_000, help="rows on disk")
    options.add_argument("--steps", type=int, default=60, help="timed steps a round")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="lanner-benchmark-") as folder:
        dataset, binary = write_data(Path(folder), given.rows)
        result = {name: compare(name, dataset, binary, given.steps, given.rounds) for name in PEER_OPTIMIZERS}
    result["bound"] = products_bound()
    if given.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{torch.get_num_threads()} threads, batch {BATCH:,}; samples/s, best of {given.rounds} rounds")
    for name in PEER_OPTIMIZERS:
        ours, peer = result[name]["lanner"], result[name]["pytorch"]
        print(f"{name:17s} Lanner {ours:9,.0f}   PyTorch {peer:9,.0f}   ratio {ours / peer:.2f}")
    print(f"matrix products alone: {result['bound']:,.0f} samples/s")


def compare(name: str, dataset: Dataset, binary: Path, steps: int, rounds: int) -> dict[str, float]:
    """Best samples/s of both, taking turns."""
    ours, peer = lanner_round(name, dataset, steps), pytorch_round(name, binary, steps)
    speeds = [(ours(), peer()) for _ in range(rounds)]
    best = [max(column) for column in zip(*speeds, strict=True)]
    return {"lanner": best[0], "pytorch": best[1], "ratio": best[0] / best[1]}


def lanner_round(name: str, dataset: Dataset, steps: int) -> Callable[[], float]:
    embedding, dense = {"SGD": (SGD(0.1), SGD(0.1)), "row-wise Adagrad": (RowWiseAdagrad(0.01), Adagrad(0.01))}[name]
    model = DLRM(dataset.schema, dim=DIM, bottom=BOTTOM, top=TOP)
    options = {"batch_size": BATCH, "embedding_optimizer": embedding, "dense_optimizer": dense, "quiet": True}
    Trainer(model, **options, max_steps=3).fit(dataset.train)  # compiles the kernels
    trainer = Trainer(model, **options, max_steps=steps + 1)
    return lambda: float(trainer.fit(dataset.train)["samples_per_second"])


def pytorch_round(name: str, binary: Path, steps: int) -> Callable[[], float]:
    torch.manual_seed(0)
    model = PlainDLRM([TABLE_ROWS] * TABLES, DIM, [DENSE, *BOTTOM], list(TOP))
    optimizer = PEER_OPTIMIZERS[name](model.parameters())

    def run() -> float:
        batches = binary_batches(binary, DENSE, TABLES, BATCH)
        train_steps(model, optimizer, batches, 1)
        start = time.perf_counter()
        rows = train_steps(model, optimizer, batches, steps)
        return rows / (time.perf_counter() - start)

    return run


def products_bound() -> float:
    """Samples/s if a step were its matrix products alone: forward, and both of backward, at the best of 7 runs."""
    vectors = TABLES + 1
    sizes = [(DENSE, BOTTOM[0]), *pairwise(BOTTOM)]
    sizes += zip((DIM + vectors * (vectors - 1) // 2, *TOP), TOP, strict=False)
    best = [float("inf")] * len(sizes)
    for layer, (inputs, outputs) in enumerate(sizes):
        x, w, gradient = torch.randn(BATCH, inputs), torch.randn(outputs, inputs), torch.randn(BATCH, outputs)
        y, dx, dw = torch.empty(BATCH, outputs), torch.empty(BATCH, inputs), torch.empty(outputs, inputs)
        for _ in range(7):
            start = time.perf_counter()
            torch.mm(x, w.t(), out=y)
            torch.mm(gradient.t(), x, out=dw)
            if layer != 0:
                torch.mm(gradient, w, out=dx)
            best[layer] = min(best[layer], time.perf_counter() - start)
    return BATCH / sum(best)


def write_data(folder: Path, rows: int, table_rows: int = TABLE_ROWS) -> tuple[Dataset, Path]:
    """The same random rows as a Lanner dataset and as a binary file of int32 (label, numbers, ids)."""
    draw = np.random.default_rng(0)
    label = draw.integers(0, 2, rows).astype(np.uint8)
    numbers = draw.integers(0, 1000, (rows, DENSE), dtype=np.int32)
    ids = draw.integers(0, table_rows, (rows, TABLES), dtype=np.int32)
    np.concatenate([label[:, None].astype(np.int32), numbers, ids], axis=1).tofile(folder / "rows.bin")

    identity = {"kind": "identity", "size": table_rows}
    schema = Schema.parse(
        {
            "labels": [{"name": "label"}],
            "dense": [{"name": f"I{k}", "transform": "log1p_clip0"} for k in range(DENSE)],
            "sparse": [{"name": f"C{k}", "raw": "int", "encoder": identity} for k in range(TABLES)],
            "tables": [{"name": f"C{k}", "rows": table_rows} for k in range(TABLES)],
        }
    )
    dense = pa.FixedSizeListArray.from_arrays(pa.array(np.log1p(numbers).astype(np.float32).reshape(-1)), DENSE)
    columns = {"label": pa.array(label), "dense": dense}
    columns |= {f"C{k}": pa.array(ids[:, k].astype(np.uint32)) for k in range(TABLES)}
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    data, part = folder / "data", "train/part-00000.arrow"
    (data / "train").mkdir(parents=True)
    with pa.ipc.new_file(data / part, batch.schema) as writer:
        writer.write_batch(batch)
    schema.save(data / "schema.yaml")
    files = {part: manifest.entry(data, part, rows), "schema.yaml": manifest.entry(data, "schema.yaml")}
    manifest.write(data, manifest.Manifest(kind="dataset", fingerprint=schema.fingerprint(), files=files))
    return Dataset.open(data), folder / "rows.bin"


if __name__ == "__main__":
    main()
