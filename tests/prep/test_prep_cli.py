"""`lanner prep` from the command line."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from prep_logs import make_rows, published_bytes, write
from typer.testing import CliRunner

from lanner.cli.prep import counts_by_table, prep, share
from lanner.errors import DataError
from lanner.prep import prepare

app = typer.Typer()
app.command()(prep)


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_options_reach_the_engine(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs.tsv", make_rows(300, numeric=2, categorical=3))
    words = f"{logs} --out {tmp_path}/out --split random --valid 0.1 --test 0.3 --seed 4 --min-count 2 --numeric 2"
    words += " --categorical 3 --transform standard --unknown-buckets 2 --delimiter \\t --dense-type float16 --json"
    found = json.loads(run(*words.split()))
    summary = prepare(
        logs, tmp_path / "same", split="random", valid=0.1, test=0.3, seed=4, min_count=2, numeric=2, categorical=3,
        transform="standard", unknown_buckets=2, dense_type="float16",
    )  # fmt: skip
    assert found["rows"] == summary.rows
    assert published_bytes(tmp_path / "out") == published_bytes(tmp_path / "same")


def test_people_get_tables_on_standard_error_only(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs.tsv", [*make_rows(50), ["1"]])
    assert run(str(logs), "--out", str(tmp_path / "out"), "--tolerant") == ""
    with pytest.raises(DataError):
        run(str(logs), "--out", str(tmp_path / "strict"))


def test_csv_options(tmp_path: Path) -> None:
    (tmp_path / "logs.csv").write_text("1;NA ;x\n0; 3;y\n")
    (tmp_path / "schema.yaml").write_text(
        "labels: [{name: click}]\ndense: [{name: age}]\nsparse: [{name: page, encoder: {kind: hash, size: 9}}]\n"
    )
    words = "--source csv --no-header --names click,age,page --delimiter ; --null NA --strip --split none --json"
    folders = ["--schema", f"{tmp_path}/schema.yaml", "--out", f"{tmp_path}/out"]
    found = json.loads(run(str(tmp_path / "logs.csv"), *words.split(), *folders))
    assert found["rows"] == {"train": 2}
    assert found["features"][0]["missing"] == {"train": 1}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--split weekly", "weekly"),
        ("--split random", "split random: give valid, test or both"),
        ("--valid lots", "valid is 'lots'"),
        ("--memory much", "memory 'much'"),
        ("--min-count 15,C3=x", "min_count '15,C3=x': expected a number, or like 15,C3=5"),
        ("--rows 0", "greater than or equal to 1"),
        ("--source xml", "xml"),
    ],
)
def test_wrong_options_are_wrong_usage(tmp_path: Path, words: str, expected: str) -> None:
    logs = write(tmp_path / "logs.tsv", make_rows(5))
    done = CliRunner().invoke(app, [str(logs), "--out", str(tmp_path / "out"), *words.split()])
    assert done.exit_code == 2
    assert expected in " ".join(done.stderr.replace("│", " ").split())


def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("lanner.prep"), "prepare", stop)
    done = CliRunner().invoke(app, ["logs.tsv", "--out", str(tmp_path)])
    assert done.exit_code == 130
    assert "interrupted; run the same command again to go on" in " ".join(done.stderr.split())


def test_thresholds_of_single_tables() -> None:
    assert [counts_by_table(text) for text in (None, "7", "15,C3=5", "C3=5")] == [
        None,
        7,
        {"*": 15, "C3": 5},
        {"C3": 5},
    ]


def test_shares_are_numbers_where_they_look_like_it() -> None:
    assert [share("random", text) for text in ("0.1", "10", "abc", None)] == [0.1, 10, "abc", None]
    assert [share("time", text) for text in ("0.1", "10")] == ["0.1", "10"]
    assert share("file", "7") == "7"


def test_help_is_quick_to_load() -> None:
    code = (
        "import sys, lanner.cli.prep; print([m for m in ('numba', 'polars', 'torch', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
