"""Criteo text to a dataset: `lanner prep` against Polars, DuckDB, PySpark and the way of facebookresearch/dlrm.

    python benchmarks/prep.py --rows 1000000 5000000 10000000 --memory 4GB

Every contender reads the same file, keeps values seen at least 15 times in the first 90 % of the rows (all of them
for the script, which knows no threshold), numbers them by falling count, takes log(1 + max(x, 0)) of the numbers and
writes both parts. Each runs in a process of its own, warmed up on 2,000 rows; ids and numbers of all but the script are
compared with ours on every row. Ours runs on all sizes, which tells whether a row always costs the same; the others on
the last one. Needs the `bench` extra; PySpark (with Java) is left out where it is not installed.

| contender | way |
|---|---|
| lanner | `lanner.prep.prepare`, everything it does by default: validation, checksums, synced files, report |
| polars staged | text once to typed Parquet (hex as integers), counts by pruned scans, replace by sorted search |
| polars | one lazy query a column for the counts, straight from the text; joins; sink to Parquet |
| duckdb | text once to a typed table on disk, a table of ids for each column, joins, one Parquet file |
| spark | `local[2]`: text once to typed Parquet, one exploded count, broadcast joins, Parquet |
| script | NumPy and dicts line by line, on `--script-rows` rows; its rate is compared |
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _prep_peers import CATEGORICAL, MIN_COUNT, NUMERIC, PEERS

GOALS = {"polars staged": 4, "polars": 4, "duckdb": 4, "spark": 20, "script": 50}
FLAT = 1.2
"""Most that a row of one size may cost of what it costs at another."""
CARDINALITIES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
    2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
"""Distinct values of the Kaggle data's columns."""
MISSING = (0.45, 0, 0.21, 0.22, 0.03, 0.22, 0.04, 0.0005, 0.04, 0.45, 0.04, 0.77, 0.22)
MISSING_KEYS = {2: 0.034, 3: 0.034, 5: 0.12, 11: 0.034, 15: 0.034, 18: 0.44, 19: 0.44, 20: 0.034, 21: 0.76, 23: 0.034}


def write_logs(path: Path, rows: int, seed: int = 0) -> None:
    """Criteo-like text: power-law categories with the Kaggle cardinalities, small integers, the Kaggle gaps."""
    random = np.random.default_rng(seed)
    with path.open("wb") as sink:
        for begin in range(0, rows, 100_000):
            count = min(100_000, rows - begin)
            columns = [_digits(random.integers(0, 4, count) == 0)]
            for share in MISSING:
                numbers = _digits(random.geometric(0.05, count) * (1 + 40 * (random.random(count) < 0.05)))
                numbers[random.random(count) < share] = b""
                columns.append(numbers)
            for column, cardinality in enumerate(CARDINALITIES):
                ranks = _ranks(random.random(count), cardinality)
                hashes = ((ranks.astype(np.uint64) + np.uint64(column * 7919)) * np.uint64(2654435761)).astype(
                    np.uint32
                )
                texts = _hex(hashes)
                texts[random.random(count) < MISSING_KEYS.get(column, 0)] = b""
                columns.append(texts)
            _write_lines(sink, columns)


def _ranks(uniform: np.ndarray, cardinality: int) -> np.ndarray:
    """Ranks 0..cardinality-1 whose frequency falls as rank^-1.15, from uniform numbers."""
    ranks = (1 - uniform * (1 - (cardinality + 1.0) ** -0.15)) ** (-1 / 0.15)
    return np.minimum(ranks.astype(np.int64) - 1, cardinality - 1)


def _digits(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int64).astype("S8")


def _hex(values: np.ndarray) -> np.ndarray:
    nibbles = (values[:, None] >> np.arange(28, -1, -4, dtype=np.uint32)) & np.uint32(15)
    return np.frombuffer(b"0123456789abcdef", np.uint8)[nibbles].copy().view("S8")[:, 0]


def _write_lines(sink, columns: list[np.ndarray]) -> None:
    """Lay every column into a fixed-width grid and drop the unused bytes."""
    width = 9
    grid = np.zeros((len(columns[0]), width * len(columns)), np.uint8)
    for at, column in enumerate(columns):
        grid[:, at * width : at * width + 8] = column.astype("S8").view(np.uint8).reshape(-1, 8)
        grid[:, at * width + 8] = ord("\t")
    grid[:, -1] = ord("\n")
    sink.write(grid[grid != 0].tobytes())


def run_lanner(text: Path, out: Path, memory: str) -> None:
    """Ours, with its defaults."""
    from lanner.prep import prepare

    prepare(text, out, split="sequential", test=0.1, min_count=MIN_COUNT, memory=memory, quiet=True)


def measure(name: str, text: Path, out: Path, memory: str) -> dict[str, float]:
    """Run a contender in a session of its own: seconds (imports and compilation left out) and peak memory."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    command = [sys.executable, __file__, "--contender", name, "--input", str(text), "--out", str(out)]
    command += ["--memory", memory]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, start_new_session=True)
    return json.loads(done.stdout.splitlines()[-1])


def contend(name: str, text: Path, out: Path, memory: str) -> None:
    """In the contender's own process: warm up on a few rows, then time the whole."""

    def run(source: Path, folder: Path) -> None:
        if name == "lanner":
            run_lanner(source, folder, memory)
        else:
            PEERS[name](source, folder)

    small = out / "warm"
    small.mkdir()
    with text.open("rb") as source:
        (small / "text.tsv").write_bytes(b"".join(source.readline() for _ in range(2000)))
    run(small / "text.tsv", small)
    shutil.rmtree(small)
    start = time.perf_counter()
    run(text, out)
    print(json.dumps({"seconds": time.perf_counter() - start, "peak_gib": _peak_gib()}))


def _peak_gib() -> float:
    """Peak resident memory of all processes of this session, each at its own worst: Spark's work is done by a child."""
    total, session = 0, os.getsid(0)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == session:
                lines = (folder / "status").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
        except OSError:  # has ended meanwhile
            continue
    return total / 2**20


def check_ids(ours: Path, theirs: Path) -> int:
    """Compare every id and number of our parts with a peer's Parquet; returns the number of ids kept in all."""
    import polars as pl

    files = [file for split in ("train", "test") for file in sorted((ours / split).glob("*.arrow"))]
    where = theirs / "all.parquet"
    source = pl.scan_parquet(where / "*.parquet" if where.is_dir() else where)
    places = source.select("place").collect()["place"].arg_sort() if "place" in source.collect_schema() else None
    dense = pl.concat([pl.read_ipc(file, columns=["dense"]) for file in files])["dense"].to_numpy()
    kept = 0
    for column in [f"C{k + 1}" for k in range(CATEGORICAL)] + [f"I{k + 1}" for k in range(NUMERIC)]:
        right = source.select(column).collect()[column]
        right = (right if places is None else right[places]).to_numpy()
        if column.startswith("I"):
            np.testing.assert_allclose(dense[:, int(column[1:]) - 1], right, rtol=1e-6)
            continue
        left = pl.concat([pl.read_ipc(file, columns=[column]) for file in files])[column].to_numpy()
        if not np.array_equal(left, right):
            row = int(np.flatnonzero(left != right)[0])
            raise SystemExit(f"{theirs.name}: ids differ: {column}, row {row}: {left[row]} and {right[row]}")
        kept += int(left.max())
    return kept


def compare(options: argparse.Namespace) -> None:
    """Make the logs, run everybody, check the ids, print the table."""
    peers = [name for name in options.peers if name != "spark" or importlib.util.find_spec("pyspark")]
    folder = Path(tempfile.mkdtemp(prefix="lanner-prep-", dir=options.scratch))
    results: list[dict[str, float | str]] = []
    try:
        for rows in sorted(options.rows):
            text = folder / "logs.tsv"
            print(f"writing {rows:,} rows", file=sys.stderr)
            write_logs(text, rows)
            runs = [measure("lanner", text, folder / "lanner", options.memory) for _ in range(options.repeat)]
            results.append(_result("lanner", rows, runs))
        for name in peers:
            source, count = text, rows
            if name == "script":
                source, count = folder / "sample.tsv", min(options.script_rows, rows)
                with text.open("rb") as lines, source.open("wb") as sink:
                    sink.writelines(lines.readline() for _ in range(count))
            runs = [measure(name, source, folder / name, options.memory) for _ in range(options.peer_repeat)]
            if name != "script":
                kept = check_ids(folder / "lanner", folder / name)
                print(f"{name}: same ids and numbers, {kept:,} ids", file=sys.stderr)
            shutil.rmtree(folder / name)
            results.append(_result(name, count, runs))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _print(results, options)


def _result(name: str, rows: int, runs: list[dict[str, float]]) -> dict[str, float | str]:
    """The fastest run, with the peak of the worst."""
    seconds, peak = min(run["seconds"] for run in runs), max(run["peak_gib"] for run in runs)
    found = {"name": name, "rows": rows, "seconds": seconds, "us_per_row": 1e6 * seconds / rows, "peak_gib": peak}
    print(f"{name}: {rows:,} rows in {seconds:.1f} s, {peak:.2f} GiB", file=sys.stderr)
    return found


def _print(results: list[dict], options: argparse.Namespace) -> None:
    ours = [result for result in results if result["name"] == "lanner"]
    print(f"{'contender':14} {'rows':>11} {'seconds':>9} {'k rows/s':>9} {'us/row':>8} {'peak GiB':>9}  lanner is")
    for result in results:
        ratio = result["us_per_row"] / ours[-1]["us_per_row"]
        goal = GOALS.get(result["name"])
        told = "" if goal is None else f"{ratio:6.1f} x faster (goal {goal})"
        print(
            f"{result['name']:14} {result['rows']:11,} {result['seconds']:9.2f} {1e3 / result['us_per_row']:9.1f} "
            f"{result['us_per_row']:8.3f} {result['peak_gib']:9.2f}  {told}"
        )
        result["lanner_times_faster"] = ratio
    costs = [result["us_per_row"] for result in ours]
    print(f"cost of a row, dearest size over cheapest: {max(costs) / min(costs):.2f} (goal {FLAT})")
    print(f"peak with --memory {options.memory}: {max(result['peak_gib'] for result in ours):.2f} GiB")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000], help="sizes; the largest is for the peers")
    parser.add_argument("--script-rows", type=int, default=50_000)
    parser.add_argument("--memory", default="4GB", help="what lanner prep is told to stay within")
    parser.add_argument("--repeat", type=int, default=3, help="runs of ours on each size; the best counts")
    parser.add_argument("--peer-repeat", type=int, default=1)
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--scratch", help="folder for the data (about 0.8 GB a million rows)")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--input", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if options.contender:
        contend(options.contender, options.input, options.out, options.memory)
    else:
        compare(options)


if __name__ == "__main__":
    main()
