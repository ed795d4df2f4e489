"""Serving a DLRM (13 numbers, 26 tables x 100,000 rows x 64, 13-512-256-64, 512-256-1) through the network.

    python benchmarks/serving.py
    python benchmarks/serving.py --peer grpc=HOST:PORT --peer http=HOST:PORT   # e.g. the same model in Triton
    python benchmarks/serving.py --perf-analyzer /path/to/perf_analyzer        # NVIDIA's load tool in place of ours

Starts `lanner serve` as a process of its own and loads it with `lanner perf`, a closed loop for each cell (protocol,
rows of a request, requests under way). With a peer, server and peer take turns in every cell and the ratio of their
rows a second is shown; the peer must serve a model of the same name with the inputs `dense` FP32 [13] and `ids`
INT64 [26].
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import numpy as np
from serving_dense import schema

from lanner.export import export
from lanner.models import DLRM
from lanner.perf import Settings, run
from lanner.train import checkpoint

NAME = "dlrm"
CELLS = [(protocol, rows, clients) for protocol in ("grpc", "http") for rows in (1, 64, 1024) for clients in (1, 8, 32)]


@dataclass(frozen=True)
class Result:
    """One cell: throughput, and latencies in milliseconds."""

    rows_per_s: float
    p50: float
    p99: float


class Ours:
    """`lanner perf`, in this process."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, url: str, protocol: str, rows: int, clients: int) -> Result:
        values = {"name": NAME, "url": url, "protocol": protocol, "batch": rows, "concurrency": (clients,)}
        ranges = {"high": 100_000, "shapes": {"dense": (13,), "ids": (26,)}}
        level = run(Settings.parse({**values, **ranges, "duration": self._seconds, "warmup": 0.5})).levels[0]
        assert level.latency is not None and not level.errors, level.error_texts
        return Result(level.rows_per_s, level.latency.p50, level.latency.p99)


class PerfAnalyzer:
    """NVIDIA's perf_analyzer."""

    def __init__(self, program: str, folder: Path, seconds: float) -> None:
        self._program, self._out, self._seconds = program, folder / "out.csv", seconds
        self._data = folder / "rows.json"
        rng = np.random.default_rng(0)
        dense, ids = rng.random((2048, 13), np.float32).tolist(), rng.integers(0, 100_000, (2048, 26)).tolist()
        rows = [
            {"dense": {"content": d, "shape": [13]}, "ids": {"content": i, "shape": [26]}}
            for d, i in zip(dense, ids, strict=True)
        ]
        self._data.write_text(json.dumps({"data": rows}))

    def __call__(self, url: str, protocol: str, rows: int, clients: int) -> Result:
        options = ["--sync", "--stability-percentage", "999", "--max-trials", "4"]
        options += ["--measurement-interval", f"{self._seconds * 1000:.0f}", "--input-data", str(self._data)]
        cell = ["-m", NAME, "-i", protocol, "-u", url, "-b", str(rows), "--concurrency-range", str(clients)]
        subprocess.run([self._program, *cell, *options, "-f", str(self._out)], check=True, capture_output=True)
        with self._out.open() as file:
            row = list(csv.DictReader(file))[-1]
        p50, p99 = (float(row[f"{p} latency"]) / 1000 for p in ("p50", "p99"))
        return Result(float(row["Inferences/Second"]), p50, p99)


def make_repository(folder: Path) -> Path:
    """Export the model with random weights."""
    model = DLRM(schema(100_000))
    recipe = {"model": {"name": "dlrm", **model.hyperparameters}}
    contents = checkpoint.Contents(optimizer={}, trainer={"step": 0}, recipe=recipe)
    checkpoint.save(folder / "checkpoint", model, contents)
    export(folder / "checkpoint", folder / "repository", NAME)
    return folder / "repository"


def start(repository: Path, ready: Path) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    """Start the server; its process and its address for each protocol."""
    ports = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0", "--ready-file", str(ready)]
    process = subprocess.Popen([sys.executable, "-m", "lanner.cli.main", "serve", str(repository), *ports])
    while not ready.exists():
        if process.poll() is not None:
            raise SystemExit("the server did not start")
        time.sleep(0.1)
    found = json.loads(ready.read_text())
    return process, {protocol: f"127.0.0.1:{found[protocol]}" for protocol in ("http", "grpc")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="append", default=[], metavar="PROTOCOL=HOST:PORT")
    parser.add_argument("--perf-analyzer", metavar="PROGRAM")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--cells", help="e.g. grpc:64:8,http:1:1 (default: all)")
    given = parser.parse_args()
    peers = dict(peer.split("=", 1) for peer in given.peer)
    cells = CELLS
    if given.cells:
        parts = (cell.split(":") for cell in given.cells.split(","))
        cells = [(protocol, int(rows), int(clients)) for protocol, rows, clients in parts]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process, urls = start(make_repository(folder), folder / "ready.json")
        measure = Ours(given.seconds)
        if given.perf_analyzer:
            measure = PerfAnalyzer(given.perf_analyzer, folder, given.seconds)
        try:
            print("protocol  rows  clients      rows/s   p50 ms   p99 ms" + "     peer rows/s   ratio" * bool(peers))
            for protocol, rows, clients in cells:
                seen = measure(urls[protocol], protocol, rows, clients)
                line = f"{protocol:8}{rows:6}{clients:9}{seen.rows_per_s:12,.0f}{seen.p50:9.2f}{seen.p99:9.2f}"
                if protocol in peers:
                    peer = measure(peers[protocol], protocol, rows, clients)
                    line += f"{peer.rows_per_s:16,.0f}{seen.rows_per_s / peer.rows_per_s:8.2f}"
                print(line, flush=True)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


if __name__ == "__main__":
    main()
