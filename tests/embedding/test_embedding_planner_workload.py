"""What tables and features ask for: sizes of dynamic tables, ids of a sample, and names that are not there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from lanner.embedding import Adagrad, Adam, DynamicConfig, FeatureConfig, RowWiseAdagrad, TableConfig
from lanner.embedding.dynamic.footprint import bytes_for, most_rows
from lanner.embedding.planner import Dense, Devices, Workload, estimate, hotness_of
from lanner.embedding.sharding import Placement, Plan
from lanner.errors import ConfigError
from lanner.schema import Schema

ONE = Devices(1, memory=1 << 40, bandwidth=1e9, compute=1e9, link=1e9)


def held(table: TableConfig, placement: Placement, ranks: int = 1, **rows: int) -> np.ndarray:
    """Weights, state and index by rank."""
    needs = Workload.of([table], [FeatureConfig("f", table.name)], Adagrad(), 64, rows=rows)
    devices = Devices(ranks, memory=1 << 40, bandwidth=1e9, compute=1e9, link=1e9)
    return estimate(needs, Plan(ranks, {table.name: placement}), devices).bytes[:3]


def test_a_dynamic_table_is_counted_as_it_counts_itself() -> None:
    table = TableConfig("d", "dynamic", 8, dynamic=DynamicConfig(min_count=2))
    assert held(table, Placement("table", (0,)), d=100_000).sum() == bytes_for(table, Adagrad(), 100_000)


def test_parts_of_a_dynamic_table_have_their_shares_of_rows_and_limits() -> None:
    table = TableConfig("d", "dynamic", 8, dynamic=DynamicConfig(max_bytes=40 << 20))
    parts = held(table, Placement("row", (0, 1)), 2, d=10**8).sum(0)
    assert (parts <= 20 << 20).all()
    assert (parts > 15 << 20).all()


@pytest.mark.parametrize("limits", [{"max_rows": 5000}, {"max_bytes": 8 << 20}])
def test_limits_say_how_large_a_dynamic_table_may_become(limits: dict[str, int]) -> None:
    table = TableConfig("d", "dynamic", 8, dynamic=DynamicConfig(**limits))
    needs = Workload.of([table], [FeatureConfig("f", "d")], Adam(), 64)
    assert needs.loads[0].rows == most_rows(table, Adam())
    assert Workload.of([table], [FeatureConfig("f", "d")], Adam(), 64, rows={"d": 100}).loads[0].rows == 100


def test_somebody_must_say_how_large_a_dynamic_table_without_limits_becomes() -> None:
    table = TableConfig("d", "dynamic", 8)
    with pytest.raises(ConfigError, match=r"table 'd' is dynamic and has no limit: .* --rows d=1000000"):
        Workload.of([table], [FeatureConfig("f", "d")], Adam(), 64)


def test_features_that_share_a_table_add_up() -> None:
    features = [FeatureConfig("a", "t"), FeatureConfig("b", "t", pooling="none"), FeatureConfig("c", "t")]
    needs = Workload.of([TableConfig("t", 100, 4)], features, RowWiseAdagrad(), 64, hotness={"a": 3, "b": 5})
    assert (needs.loads[0].ids, needs.loads[0].vectors) == (9, 7)


def test_distinct_ids_are_those_expected_of_even_draws() -> None:
    needs = Workload.of([TableConfig("t", 50, 4)], [FeatureConfig("f", "t")], RowWiseAdagrad(), 64)
    draws = np.random.default_rng(0).integers(0, 50, (2000, 64))
    seen = np.mean([len(np.unique(row)) for row in draws])
    assert needs.loads[0].distinct(64) == pytest.approx(seen, rel=0.02)
    assert needs.loads[0].distinct(0) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hotness": {"g": 2}}, "hotness: feature 'g': there is none of that name; there are f"),
        ({"hotness": {"f": 0}}, "hotness: feature 'f' is 0, expected a number above 0"),
        ({"rows": {"t": 5}}, "rows: dynamic table 't': there is none of that name; there are none"),
    ],
)
def test_names_and_numbers_that_make_no_sense(options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Workload.of([TableConfig("t", 50, 4)], [FeatureConfig("f", "t")], RowWiseAdagrad(), 64, **options)


def test_hotness_of_a_schema() -> None:
    ragged = {"hotness": None, "separator": ","}
    schema = Schema.parse(
        {
            "sparse": [
                {"name": "one"},
                {"name": "three", "hotness": 3, "separator": ","},
                {"name": "upto", "max_hotness": 20, **ragged},
                {"name": "any", **ragged},
            ]
        }
    )
    assert hotness_of(schema, {"any": 4.5}) == {"one": 1, "three": 3, "upto": 20, "any": 4.5}
    assert hotness_of(schema, {"any": 2, "upto": 6})["upto"] == 6
    with pytest.raises(ConfigError, match=r"feature 'any' has bags of any length .* --hotness any=10"):
        hotness_of(schema)
    with pytest.raises(ConfigError, match="feature 'other': there is none"):
        hotness_of(schema, {"any": 1, "other": 1})


def test_the_dense_side_is_all_but_the_embedding() -> None:
    with torch.device("meta"):
        model = nn.ModuleDict({"embedding": nn.Linear(1000, 1000), "top": nn.Linear(7, 3)})
    assert Dense.of(model, 5, Adam()) == Dense(weights=24, activations=10, inputs=5, state=8)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "count is 0"),
        ({"count": 3, "nodes": 2}, "3 processes do not divide evenly among 2 nodes"),
        ({"memory": 0}, "memory is 0"),
        ({"link": float("nan")}, "link is nan"),
    ],
)
def test_devices_that_cannot_be(values: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Devices(**{"count": 1, "memory": 1, "bandwidth": 1.0, "compute": 1.0, "link": 1.0, **values})


def test_what_is_not_given_is_measured_and_shared() -> None:
    two = Devices.here(2, memory=1e9, compute=1e9, link=1e9)
    assert (two.memory, two.compute, two.link) == (10**9, 1e9, 1e9)
    assert two.bandwidth > 1e6
    assert Devices.here(1, bandwidth=1e9, compute=1e9).memory > Devices.here(4, bandwidth=1e9, compute=1e9).memory > 0
