"""The command line as scripts meet it: help, exit codes, error texts, JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import lanner as ln
from lanner.cli.main import COMMANDS


def lanner(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lanner.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str) -> None:
    done = lanner(command, "--help")
    assert done.returncode == 0
    assert f"Example: lanner {command}" in " ".join(done.stdout.split())


def test_wrong_usage_ends_with_two_and_a_failure_with_one(tmp_path: Path) -> None:
    assert lanner("prep").returncode == 2
    done = lanner("prep", "no_such_file.tsv", "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert "no_such_file.tsv" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_file_is_named_without_an_error_number(tmp_path: Path) -> None:
    done = lanner("train", str(tmp_path / "no_recipe.yaml"), "out=run", cwd=tmp_path)
    assert done.returncode == 1
    assert "".join(done.stderr.split()) == f"error:nosuchfile:{tmp_path / 'no_recipe.yaml'}"
    denied = lanner("train", str(tmp_path), "out=run")
    assert denied.returncode == 1
    assert "Errno" not in denied.stderr


def test_version() -> None:
    done = lanner("--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"lanner {ln.__version__}")


def test_json_is_one_document_on_standard_output(tmp_path: Path) -> None:
    done = lanner("synth", "--rows", "200", "--out", str(tmp_path / "logs.tsv"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 200


def test_the_whole_job_from_text_to_a_repository(tmp_path: Path) -> None:
    """synth → prep → train → evaluate → export, each as its own process."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("model: {name: dlrm, dim: 4, bottom: [8, 4], top: [8, 1]}\nbatch_size: 256\n")
    for arguments in (
        ["synth", "--rows", "2000", "--out", "logs.tsv"],
        ["prep", "--source", "criteo", "logs.tsv", "--out", "dataset"],
        ["train", "recipe.yaml", "data=dataset", "out=run", "--json"],
        ["evaluate", "run", "dataset/test", "--predictions", "scores.parquet"],
        ["export", "run", "--repository", "repository", "--name", "ctr"],
    ):
        done = lanner(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        if arguments[0] == "train":
            assert json.loads(done.stdout)["test"]["rows"] == 200
    assert (tmp_path / "repository" / "ctr" / "config.pbtxt").is_file()
    assert (tmp_path / "repository" / "ctr" / "1" / "manifest.json").is_file()
