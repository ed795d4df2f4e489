"""The dense part of a served DLRM (13-512-256-64, 26 x 64, 512-256-1) by every engine that could run it.

    python benchmarks/serving_dense.py           # add --inductor for AOTInductor (compiles for a minute)

The engines take turns, so that a busy machine hits them alike; each cell is the best of the rounds in milliseconds,
then rows a second. "pieces" is what Lanner serves with: ONNX Runtime on one thread, rows cut into pieces that the
kernel threads run side by side.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import numpy as np
import onnxruntime
import torch

from lanner.export.graph import DenseGraph
from lanner.export.onnx import DensePart, to_onnx
from lanner.kernels import parallel
from lanner.models import DLRM
from lanner.schema import Schema

Engine = Callable[[np.ndarray, np.ndarray], object]
SIZES = (1, 16, 64, 256, 1024)


def schema(rows: int = 100) -> Schema:
    """13 numbers and 26 hashed categories with tables of `rows` rows."""
    sparse = [{"name": f"C{k}", "raw": "hex", "encoder": {"kind": "hash", "size": rows - 1}} for k in range(1, 27)]
    return Schema.parse(
        {
            "labels": [{"name": "label"}],
            "dense": [{"name": f"I{k}", "raw": "int", "transform": "log1p_clip0"} for k in range(1, 14)],
            "sparse": sparse,
            "tables": [{"name": f"C{k}", "rows": rows} for k in range(1, 27)],
        }
    )


def engines(folder: Path, threads: int, inductor: bool) -> dict[str, Engine]:
    """The engines by name, all with the same weights."""
    model = DLRM(schema()).eval()
    model.interaction.plain = True  # every engine starts from the same plain graph
    part = DensePart(model).eval()
    example = (torch.zeros(2, 13), torch.zeros(2, 26 * 64))
    path = folder / "model.onnx"
    path.write_bytes(to_onnx(model))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    with torch.no_grad():
        script = torch.jit.freeze(torch.jit.trace(part, example))
    found: dict[str, Engine] = {
        "eager": _torch(part),
        "TorchScript": _torch(script),
        "ONNX Runtime": lambda dense, embedded: session.run(None, {"dense": dense, "embedded": embedded}),
        "pieces": DenseGraph(path),
    }
    if inductor:
        rows = torch.export.Dim("B")
        program = torch.export.export(part, example, dynamic_shapes=(({0: rows}, {0: rows}),))
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
        found["AOTInductor"] = _torch(torch._inductor.aoti_load_package(package))
    return found


def _torch(module: Callable[..., torch.Tensor]) -> Engine:
    def run(dense: np.ndarray, embedded: np.ndarray) -> object:
        with torch.inference_mode():
            return module(torch.from_numpy(dense), torch.from_numpy(embedded))

    return run


def measure(found: dict[str, Engine], size: int, rounds: int) -> dict[str, float]:
    """Best seconds of every engine on batches of `size` rows."""
    rng = np.random.default_rng(size)
    dense, embedded = rng.random((size, 13), np.float32), rng.random((size, 26 * 64), np.float32)
    best = dict.fromkeys(found, float("inf"))
    for _ in range(rounds):
        for name, run in found.items():
            begun = time.perf_counter()
            run(dense, embedded)
            best[name] = min(best[name], time.perf_counter() - begun)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=parallel.threads())
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--inductor", action="store_true")
    given = parser.parse_args()
    os.environ["LANNER_THREADS"] = str(given.threads)
    torch.set_num_threads(given.threads)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        found = engines(Path(folder), given.threads, given.inductor)
        print(f"{given.threads} threads".ljust(10) + "".join(name.rjust(22) for name in found))
        for size in SIZES:
            best = measure(found, size, given.rounds)
            cells = (f"{1e3 * t:9.3f} ms {size / t:9,.0f}".rjust(22) for t in best.values())
            print(f"{size:5d} rows" + "".join(cells))


if __name__ == "__main__":
    main()
