"""The recipe for small Criteo-format data reaches what it promises on the real sample."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from lanner.prep import prepare
from lanner.train.recipe import load
from lanner.train.run import train

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "examples" / "recipes"


@pytest.mark.parametrize("dtype", ["fp32", pytest.param("bf16", marks=pytest.mark.slow)])
def test_small_recipe_on_the_kaggle_sample(dtype: str, shared_data: Path, tmp_path: Path) -> None:
    """Also with tables of half the size."""
    recipe = RECIPES / "dlrm_criteo_small.yaml"
    min_count = load(recipe).prep["min_count"]
    files = str(shared_data / "criteo_kaggle_10k.tsv.gz")
    prepare(files, tmp_path / "data", "criteo", min_count=min_count, test=0.2, quiet=True)
    settings = [f"data={tmp_path / 'data'}", f"embedding.tables={{'*': {{dtype: {dtype}}}}}"]
    results = [train(load(recipe, [*settings, f"seed={seed}"]), quiet=True) for seed in range(3)]
    assert [result["test"]["rows"] for result in results] == [2000] * 3
    assert all(result["healthy"] for result in results)
    assert np.mean([result["test"]["auc"] for result in results]) >= 0.735


@pytest.mark.slow
def test_raw_hashes_train_as_well_as_a_vocabulary(shared_data: Path) -> None:
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "dynamic_auc.py"))
    found = benchmark["compare"](str(shared_data / "criteo_kaggle_10k.tsv.gz"))
    assert found["vocabulary"]["mean"] >= 0.735
    for name, bound in benchmark["BOUNDS"].items():
        assert found[name]["difference"] >= -bound, f"{name}: {found[name]}"
    assert found["30 % in all"]["evicted"] > 10_000, "a budget must bind to prove anything"


@pytest.mark.parametrize("name", [path.name for path in RECIPES.glob("*.yaml")])
def test_every_recipe_is_valid(name: str) -> None:
    assert load(RECIPES / name).data is None
