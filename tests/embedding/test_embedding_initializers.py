"""First values: their distribution, and what they depend on."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lanner.embedding import Constant, EmbeddingCollection, FeatureConfig, Normal, TableConfig, Uniform
from lanner.embedding.initializers import Cut, fill, fill_keys
from lanner.errors import ConfigError


def filled(initializer, rows=20_000, dim=8, table="t", seed=0):
    block = np.zeros((rows, dim), np.float32)
    fill(block, initializer, table, rows, seed)
    return block


def test_default_is_uniform_within_the_root_of_one_over_rows():
    values, bound = filled(None), math.sqrt(1 / 20_000)
    assert np.abs(values).max() <= bound and np.abs(values.mean()) < bound / 50
    assert values.std() == pytest.approx(bound / math.sqrt(3), rel=0.02)


def test_uniform_fills_its_range_evenly():
    counts, _ = np.histogram(filled(Uniform(2.0, 3.0)), bins=20, range=(2, 3))
    assert counts.sum() == 160_000 and np.abs(counts - 8000).max() < 500


def test_normal_has_the_right_quantiles():
    values = (filled(Normal(1.0, 0.5)) - 1.0) / 0.5
    assert values.mean() == pytest.approx(0, abs=0.02) and values.std() == pytest.approx(1, abs=0.02)
    assert (values < -1.6449).mean() == pytest.approx(0.05, abs=0.005)
    assert (values > 2.3263).mean() == pytest.approx(0.01, abs=0.002) and np.isfinite(values).all()


def test_constant():
    assert (filled(Constant(0.5)) == 0.5).all()


@pytest.mark.parametrize("initializer", [None, Normal(0, 1)])
def test_values_depend_on_seed_table_and_row_alone(initializer):
    whole, part = filled(initializer), np.zeros((100, 8), np.float32)
    fill(part, initializer, "t", 20_000, 0, first=7000)
    assert np.array_equal(part, whole[7000:7100])
    assert not np.array_equal(filled(initializer, seed=1), whole)
    assert not np.array_equal(filled(initializer, table="u"), whole)
    neighbours = whole[:-1].reshape(-1), whole[1:].reshape(-1)
    assert abs(np.corrcoef(*neighbours)[0, 1]) < 0.02


@pytest.mark.parametrize("initializer", [Uniform(-2, 1), Normal(0, 1), Constant(3.0)])
def test_rows_by_key_are_those_of_a_static_table(initializer):
    keys = np.random.default_rng(0).permutation(20_000)[:50]
    rows = np.zeros((50, 8), np.float32)
    fill_keys(rows, initializer, "t", 0, keys)
    assert np.array_equal(rows, filled(initializer)[keys])


@pytest.mark.parametrize("whole", [Uniform(-2, 1), Normal(0, 1), Constant(3.0)])
def test_a_part_of_a_table_has_its_values(whole):
    part = np.zeros((6667, 3), np.float32)
    fill(part, Cut(whole, first=1, step=3, column=4, dim=8), "t", len(part), 0)
    assert np.array_equal(part, filled(whole)[1::3, 4:7])


def test_rows_by_key_are_small_by_default():
    rows = np.zeros((5000, 8), np.float32)
    fill_keys(rows, None, "t", 0, np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 5000))
    assert 0.0099 < np.abs(rows).max() <= 0.01 and abs(rows.mean()) < 1e-4


def test_the_order_of_tables_changes_nothing():
    tables, features = [TableConfig(n, 50, 4) for n in "ab"], [FeatureConfig(n, n) for n in "ab"]
    one, two = EmbeddingCollection(tables, features), EmbeddingCollection(tables[::-1], features)
    assert all((one.weight(n) == two.weight(n)).all() for n in "ab")


def test_impossible_settings_are_errors():
    with pytest.raises(ConfigError, match="low"):
        Uniform(1.0, 0.0)
    with pytest.raises(ConfigError, match="std"):
        Normal(0.0, -1.0)
