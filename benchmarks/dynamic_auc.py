"""What a vocabulary is worth: DLRM on a small Criteo log with one, and from raw 64-bit hashes in dynamic tables.

    python benchmarks/dynamic_auc.py ../shared/data/criteo_kaggle_10k.tsv.gz

Four runs with the settings of examples/recipes/dlrm_criteo_small.yaml, on the first 80 % of the rows, tested on the
rest, each with three seeds:

    vocabulary   `lanner prep` with the recipe's threshold; rarer values share the id of missing ones
    keys         `lanner prep --keys`; the same threshold lets keys in
    30 % each    and each table has rows for 30 % of its distinct keys at most, LFU
    30 % in all  no threshold: every key is let in, and one limit for all tables, under which they together hold at
                 most 30 % of all keys, LFU

`difference` is the mean AUC less that of the vocabulary; the bounds are 0.01 without a limit, 0.015 with one. The
recipe was chosen for vocabularies, on these same test rows (see there). JSON goes to standard output, the table to
standard error. Without a file nothing is done.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from lanner.data import Dataset
from lanner.prep import prepare
from lanner.train.recipe import load
from lanner.train.run import train

RECIPE = Path(__file__).resolve().parent.parent / "examples" / "recipes" / "dlrm_criteo_small.yaml"
THRESHOLD = int(load(RECIPE).prep["min_count"])
SHARE = 0.3
BOUNDS = {"vocabulary": 0.0, "keys": 0.01, "30 % each": 0.015, "30 % in all": 0.015}


def prepared(file: str, folder: Path) -> tuple[str, str]:
    """The log as a dataset with vocabularies, and as one with keys."""
    for name, options in (("vocabulary", {"min_count": THRESHOLD}), ("keys", {"keys": True})):
        prepare(file, folder / name, "criteo", test=0.2, quiet=True, **options)  # type: ignore[arg-type]
    return str(folder / "vocabulary"), str(folder / "keys")


def distinct(data: str) -> dict[str, int]:
    """How many distinct keys each table meets in training."""
    split = Dataset.open(data).train
    assert split is not None
    bags = split.slice(0, split.rows).bags
    columns = bags.values.numpy().reshape(len(bags.names), -1)
    return {name: len(np.unique(ids)) for name, ids in zip(bags.names, columns, strict=True)}


def one_limit(keys: dict[str, int]) -> int:
    """The largest number of rows a table under which all tables hold at most their share of all keys."""
    fits = [
        n for n in range(1, max(keys.values())) if sum(min(n, k) for k in keys.values()) <= SHARE * sum(keys.values())
    ]
    return max(fits)


def limits(keys: dict[str, int]) -> dict[str, dict[str, Any]]:
    """`embedding.tables` of each run with keys."""
    lfu = {"eviction": "lfu", "min_count": THRESHOLD}
    each = {name: {"dynamic": {**lfu, "max_rows": max(int(SHARE * count), 1)}} for name, count in keys.items()}
    return {
        "keys": {"*": {"dynamic": {"min_count": THRESHOLD}}},
        "30 % each": each,
        "30 % in all": {"*": {"dynamic": {"eviction": "lfu", "max_rows": one_limit(keys)}}},
    }


def score(data: str, tables: dict[str, Any], seeds: int) -> dict[str, Any]:
    """Test AUC and log-loss of each seed, and what the tables of the last one hold."""
    changes = [f"data={data}", f"embedding={json.dumps({'tables': tables})}"]
    results = [train(load(RECIPE, [*changes, f"seed={seed}"]), quiet=True) for seed in range(seeds)]
    dynamic = results[-1].get("dynamic_tables", {}).values()
    return {
        "auc": [result["test"]["auc"] for result in results],
        "log_loss": [result["test"]["log_loss"] for result in results],
        **{name: sum(table[name] for table in dynamic) for name in ("rows", "evicted") if dynamic},
    }


def compare(file: str, seeds: int = 3) -> dict[str, dict[str, Any]]:
    """All runs by name, with `mean` and `difference` of the AUC."""
    with tempfile.TemporaryDirectory(prefix="lanner-") as folder:
        vocabulary, keys = prepared(file, Path(folder))
        found = {"vocabulary": score(vocabulary, {}, seeds)}
        found |= {name: score(keys, tables, seeds) for name, tables in limits(distinct(keys)).items()}
    for run in found.values():
        run["mean"] = float(np.mean(run["auc"]))
        run["difference"] = run["mean"] - found["vocabulary"]["mean"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", help="a log in Criteo's format")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    if given.file is None:
        parser.print_usage(sys.stderr)
        return
    found = compare(given.file, given.seeds)
    print(f"{'':12} {'AUC':>7} {'difference':>11} {'bound':>7} {'rows':>7} {'evicted':>9}  by seed", file=sys.stderr)
    for name, run in found.items():
        aucs = " ".join(f"{auc:.4f}" for auc in run["auc"])
        held = f"{run.get('rows', '-'):>7} {run.get('evicted', '-'):>9}"
        print(
            f"{name:12} {run['mean']:7.4f} {run['difference']:+11.4f} {-BOUNDS[name]:7.3f} {held}  {aucs}",
            file=sys.stderr,
        )
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
