"""`lanner plan` as scripts and people meet it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lanner.embedding.sharding import Plan
from lanner.schema import Schema

SPEEDS = ("--memory", "4GiB", "--bandwidth", "20GB/s", "--compute", "100G", "--link", "1GB/s")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recipe and the schema of a dataset that need not exist, with a table far larger than this machine."""
    schema = {
        "labels": [{"name": "label"}],
        "dense": [{"name": "n"}],
        "sparse": [
            {"name": "user", "raw": "int", "encoder": {"kind": "identity", "size": 20_000_000}},
            {"name": "item", "raw": "int", "encoder": {"kind": "identity", "size": 100_000}},
            {"name": "country", "raw": "int", "encoder": {"kind": "identity", "size": 200}},
            {"name": "query", "raw": "int", "encoder": {"kind": "key"}},
        ],
        "tables": [
            {"name": "user", "rows": 20_000_000},
            {"name": "item", "rows": 100_000},
            {"name": "country", "rows": 200},
            {"name": "query", "rows": "dynamic"},
        ],
    }
    Schema.parse(schema).save(tmp_path / "schema.yaml")
    recipe = {"data": str(tmp_path / "schema.yaml"), "model": {"dim": 64, "bottom": [64], "top": [1]}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lanner.cli.main", "plan", "recipe.yaml", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def test_from_schema_to_plan_and_back(folder: Path) -> None:
    asked = ("--processes", "4", "--rows", "query=1000000", *SPEEDS)
    done = run(folder, *asked, "--out", "plan.yaml", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["fits"]
    assert [table["name"] for table in figures["tables"]] == ["user", "item", "country", "query"]
    for device in figures["devices"]:
        assert device["bytes"]["total"] <= device["free"] == 4 << 30
    for table in ("user", "item", "country", "query", "memory of each process"):
        assert table in done.stderr
    kept = Plan.load(folder / "plan.yaml")
    assert kept.tables["user"].kind in ("row", "column")  # 5 GB for 4 GiB

    edited = yaml.safe_load((folder / "plan.yaml").read_text())
    edited["tables"]["item"] = {"kind": "table", "ranks": [3]}
    (folder / "plan.yaml").write_text(yaml.safe_dump(edited))
    again = run(folder, "--check", "plan.yaml", "--rows", "query=1000000", *SPEEDS, "--json")
    assert again.returncode == 0, again.stderr
    item = json.loads(again.stdout)["tables"][1]
    assert (item["kind"], item["ranks"]) == ("table", [3])
    assert item["bytes"][3] > 100_000 * 64 * 4 > max(item["bytes"][:3])


def test_a_plan_that_cannot_fit_is_refused(folder: Path) -> None:
    done = run(folder, "--rows", "query=1000", *SPEEDS)
    assert done.returncode == 1
    text = " ".join(done.stderr.split())
    assert "rank 0 needs 5," in text
    assert "4,294,967,296 (4 GiB) are free" in text
    assert "Largest tables on rank 0: 'user' 4.84 GiB" in text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 1, "table 'query' is dynamic and has no limit"),
        (("--rows", "user=5"), 1, "rows: dynamic table 'user'"),
        (("--rows", "query"), 2, "expected NAME=NUMBER"),
        (("--hotness", "item=many"), 2, "expected NAME=NUMBER"),
        (("--memory", "4 bits"), 2, "expected an amount above 0"),
        (("--processes", "3", "--nodes", "2", "--rows", "query=5"), 1, "do not divide evenly"),
        (("data=", "--rows", "query=5"), 1, "names no data"),
    ],
)
def test_options_that_make_no_sense(folder: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = run(folder, *arguments, *(SPEEDS if "--memory" not in arguments else ()))
    assert done.returncode == code, done.stderr
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


def test_checked_plans_must_be_of_these_tables_and_processes(folder: Path) -> None:
    (folder / "plan.yaml").write_text("version: 1\nworld_size: 2\ntables: {shop: {kind: data}}\n")
    done = run(folder, "--check", "plan.yaml", "--rows", "query=5", *SPEEDS)
    assert (done.returncode, "there is no table 'shop'" in done.stderr) == (1, True)
    names = ("user", "item", "country", "query")
    tables = ", ".join(f"{name}: {{kind: row, ranks: [0, 1]}}" for name in names)
    (folder / "plan.yaml").write_text(f"version: 1\nworld_size: 2\ntables: {{{tables}}}\n")
    done = run(folder, "--check", "plan.yaml", "--processes", "4", "--rows", "query=5", *SPEEDS)
    assert done.returncode == 1
    assert "it is for 2 processes, but 4 are to run" in " ".join(done.stderr.split())
