"""The examples do what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import lanner as ln
from lanner.schema import Schema

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_example_equals_the_recipe(tmp_path: Path) -> None:
    """Same seed, same data: `examples/dlrm_criteo.py` and `lanner prep` + `lanner train` agree to the last digit."""
    logs = str(tmp_path / "logs.tsv")
    ln.synth(logs, 6000, quiet=True)
    printed = run(str(EXAMPLES / "dlrm_criteo.py"), logs, str(tmp_path / "python"))
    lanner = ("-m", "lanner.cli.main")
    run(*lanner, "prep", "--source", "criteo", logs, "--out", str(tmp_path / "dataset"))
    recipe = str(EXAMPLES / "recipes" / "dlrm_criteo.yaml")
    paths = (f"data={tmp_path / 'dataset'}", f"out={tmp_path / 'run'}")
    test = json.loads(run(*lanner, "train", recipe, *paths, "--json"))["test"]
    assert str(test["auc"]) in printed
    assert str(test["log_loss"]) in printed
    for name in ("dense.safetensors", "tables/C1/emb_vector", "tables/C26/emb_vector"):
        theirs, ours = (next((tmp_path / side).glob(f"checkpoints/*/{name}")) for side in ("run", "python/run"))
        assert theirs.read_bytes() == ours.read_bytes()


@pytest.mark.parametrize("schema", sorted(EXAMPLES.glob("schemas/*.yaml")), ids=lambda path: path.stem)
def test_example_schemas_are_valid(schema: Path) -> None:
    assert Schema.load(schema).labels


@pytest.mark.parametrize("recipe", sorted(EXAMPLES.glob("recipes/*.yaml")), ids=lambda path: path.stem)
def test_example_recipes_are_valid(recipe: Path) -> None:
    from lanner.train.recipe import load

    assert load(recipe).model.name == "dlrm"
