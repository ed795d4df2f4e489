"""Criteo text to a dataset: `lanner prep` against Polars and against the way of facebookresearch/dlrm.

    python benchmarks/prep.py --rows 2000000

Every contender reads the same file, keeps values seen at least 15 times in the first 90 % of the rows (all of them
for the script, which knows no threshold), numbers them by falling count, takes log(1 + max(x, 0)) of the numbers and
writes both parts. Each runs in a process of its own; the ids of ours and of Polars are compared on every row.

| contender | way |
|---|---|
| lanner | `lanner.prep.prepare`, everything it does by default: validation, checksums, synced files |
| polars | one lazy query a column for the counts, straight from the text; joins; sink to Parquet |
| polars staged | text once to typed Parquet (hex as integers), counts by pruned scans, replace by sorted search |
| script | NumPy and dicts line by line, on `--script-rows` rows; its rate is compared |
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

NUMERIC, CATEGORICAL, MIN_COUNT = 13, 26, 15
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


def run_lanner(text: Path, out: Path) -> None:
    """Ours, with its defaults."""
    from lanner.prep import prepare

    prepare(text, out, split="sequential", test=0.1, min_count=MIN_COUNT, quiet=True)


def _names() -> list[str]:
    return ["label", *(f"I{k + 1}" for k in range(NUMERIC)), *(f"C{k + 1}" for k in range(CATEGORICAL))]


def _scan(text: Path):
    import polars as pl

    names = _names()
    types = [pl.UInt8, *[pl.Int64] * NUMERIC, *[pl.String] * CATEGORICAL]
    return pl.scan_csv(text, separator="\t", has_header=False, schema=dict(zip(names, types, strict=True)))


def _numbers():
    import polars as pl

    return [pl.col(f"I{k + 1}").fill_null(0).clip(0).log1p().cast(pl.Float32) for k in range(NUMERIC)]


def _train_rows(frame) -> int:
    import polars as pl

    rows = frame.select(pl.len()).collect().item()
    return rows - rows // 10


def run_polars(text: Path, out: Path) -> None:
    """The straightforward way: 26 counts over the text, 26 joins, one streamed Parquet file."""
    import polars as pl

    frame = _scan(text)
    train = _train_rows(frame)
    frame = frame.with_columns(pl.col(f"C{k + 1}").str.to_integer(base=16, dtype=pl.UInt32) for k in range(CATEGORICAL))
    columns = [f"C{k + 1}" for k in range(CATEGORICAL)]
    counts = pl.collect_all([_counts(frame.head(train), column) for column in columns])
    for column, table in zip(columns, counts, strict=True):
        ids = table.lazy().select(column, pl.int_range(1, table.height + 1, dtype=pl.UInt32).alias("id"))
        frame = frame.join(ids, on=column, how="left", maintain_order="left")
        frame = frame.with_columns(pl.col("id").fill_null(0).alias(column)).drop("id")
    frame.with_columns(_numbers()).sink_parquet(out / "all.parquet")


def _counts(frame, column: str):
    import polars as pl

    counted = frame.select(column).drop_nulls().group_by(column).len("count").filter(pl.col("count") >= MIN_COUNT)
    return counted.sort(["count", column], descending=[True, False])


def run_polars_staged(text: Path, out: Path) -> None:
    """The better way: typed Parquet once, then pruned scans; ids by sorted search in NumPy."""
    import polars as pl

    columns = [f"C{k + 1}" for k in range(CATEGORICAL)]
    typed = [pl.col(column).str.to_integer(base=16, dtype=pl.UInt32) for column in columns]
    _scan(text).with_columns(typed).sink_parquet(out / "staged.parquet", compression="lz4")
    staged = pl.scan_parquet(out / "staged.parquet")
    train = _train_rows(staged)
    mapped = [_searched(_counts(staged.head(train), column).collect(), column) for column in columns]
    staged.with_columns(*_numbers(), *mapped).sink_parquet(out / "all.parquet")
    (out / "staged.parquet").unlink()


def _searched(counts, column: str):
    import polars as pl

    values = counts[column].to_numpy()
    order = np.argsort(values)
    ascending, ids = values[order], (order + 1).astype(np.uint32)

    def search(series):
        keys = series.fill_null(0).to_numpy()
        at = np.minimum(np.searchsorted(ascending, keys), max(len(ascending) - 1, 0))
        found = (ascending[at] == keys) & ~series.is_null().to_numpy() if len(ascending) else np.zeros(len(keys), bool)
        return pl.Series(np.where(found, ids[at] if len(ids) else 0, 0).astype(np.uint32))

    return pl.col(column).map_batches(search, return_dtype=pl.UInt32, is_elementwise=True)


def run_script(text: Path, out: Path) -> None:
    """Line by line: split, int(x, 16), dicts of the values seen, then one dict lookup a cell; npz files."""
    with text.open() as source:
        lines = sum(1 for _ in source)
    y = np.zeros(lines, np.int32)
    numbers = np.zeros((lines, NUMERIC), np.int32)
    categories = np.zeros((lines, CATEGORICAL), np.int64)
    with text.open() as source:
        for i, line in enumerate(source):
            cells = [cell or "0" for cell in line.rstrip("\n").split("\t")]
            y[i] = int(cells[0])
            numbers[i] = np.array(cells[1 : 1 + NUMERIC], np.int32)
            categories[i] = np.array([int(cell, 16) for cell in cells[1 + NUMERIC :]], np.int64)
    np.savez_compressed(out / "day_0.npz", X_int=numbers, X_cat_t=categories.T, y=y)
    ids = np.zeros_like(categories)
    for j in range(CATEGORICAL):
        seen: dict[int, int] = {}
        for value in categories[:, j]:
            seen[value] = 1
        for number, value in enumerate(seen):
            seen[value] = number
        for i, value in enumerate(categories[:, j]):
            ids[i, j] = seen[value]
    numbers[numbers < 0] = 0
    np.savez_compressed(out / "day_0_processed.npz", X_cat=ids, X_int=np.log(numbers + 1, dtype=np.float32), y=y)


CONTENDERS = {
    "lanner": run_lanner,
    "polars": run_polars,
    "polars staged": run_polars_staged,
    "script": run_script,
}


def measure(name: str, text: Path, out: Path) -> dict[str, float]:
    """Run a contender in a process of its own: seconds (imports and compilation left out) and peak memory."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    command = [sys.executable, __file__, "--contender", name, "--input", str(text), "--out", str(out)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def contend(name: str, text: Path, out: Path) -> None:
    """In the contender's own process: warm up on a few rows, then time the whole."""
    small = out / "warm"
    small.mkdir()
    with text.open("rb") as source:
        (small / "text.tsv").write_bytes(b"".join(source.readline() for _ in range(2000)))
    CONTENDERS[name](small / "text.tsv", small)
    shutil.rmtree(small)
    start, spent = time.perf_counter(), time.process_time()
    CONTENDERS[name](text, out)
    seconds, spent = time.perf_counter() - start, time.process_time() - spent
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": seconds, "cpu_seconds": spent, "peak_gib": peak}))


def same_ids(ours: Path, theirs: Path) -> int:
    """Compare every id and number of our parts with the Polars file; returns the number of ids kept in all."""
    import polars as pl

    files = [*sorted(ours.glob("train/*.arrow")), *sorted(ours.glob("test/*.arrow"))]
    mine = pl.concat([pl.read_ipc(file) for file in files], rechunk=True)
    other = pl.read_parquet(theirs / "all.parquet")
    kept = 0
    for k in range(CATEGORICAL):
        column = f"C{k + 1}"
        left, right = mine[column].to_numpy(), other[column].to_numpy()
        if not np.array_equal(left, right):
            row = int(np.flatnonzero(left != right)[0])
            raise SystemExit(f"ids differ: {column}, row {row}: {left[row]} and {right[row]}")
        kept += int(left.max())
    numbers = mine["dense"].to_numpy()
    for k in range(NUMERIC):
        np.testing.assert_allclose(numbers[:, k], other[f"I{k + 1}"].to_numpy(), rtol=1e-6)
    return kept


def compare(options: argparse.Namespace) -> None:
    """Make the logs, run everybody, check the ids, print the ratios."""
    folder = Path(tempfile.mkdtemp(prefix="lanner-prep-", dir=options.scratch))
    try:
        text, sample = folder / "logs.tsv", folder / "sample.tsv"
        print(f"writing {options.rows:,} rows", file=sys.stderr)
        write_logs(text, options.rows)
        with text.open("rb") as source, sample.open("wb") as sink:
            sink.writelines(source.readline() for _ in range(options.script_rows))
        results = {}
        for name in options.only or CONTENDERS:
            source, rows = (sample, options.script_rows) if name == "script" else (text, options.rows)
            runs = [measure(name, source, folder / name) for _ in range(1 if name == "script" else options.repeat)]
            best = min(runs, key=lambda run: run["seconds"])
            results[name] = {**best, "rows": rows, "rows_per_second": rows / best["seconds"]}
            rates = [rows / best[key] / 1e3 for key in ("seconds", "cpu_seconds")]
            print(
                f"{name:14} {rates[0]:9.1f} k rows/s {rates[1]:9.1f} k rows per CPU second {best['peak_gib']:6.2f} GiB",
                file=sys.stderr,
            )
        if {"lanner", "polars staged"} <= set(results):
            print(f"ids agree, {same_ids(folder / 'lanner', folder / 'polars staged'):,} kept", file=sys.stderr)
        if {"polars", "polars staged"} <= set(results):
            same_ids(folder / "lanner", folder / "polars")
        ratios = {
            name: results["lanner"]["rows_per_second"] / result["rows_per_second"]
            for name, result in results.items()
            if name != "lanner" and "lanner" in results
        }
        print(json.dumps({"rows": options.rows, "results": results, "lanner_times_faster_than": ratios}, indent=2))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--script-rows", type=int, default=50_000)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the best counts")
    parser.add_argument("--only", nargs="*", choices=list(CONTENDERS))
    parser.add_argument("--scratch", help="folder for the data (0.6 GB a million rows)")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--input", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if options.contender:
        contend(options.contender, options.input, options.out)
    else:
        compare(options)


if __name__ == "__main__":
    main()
