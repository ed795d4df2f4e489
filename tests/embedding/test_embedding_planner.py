"""Plans that the planner makes: complete, within memory, balanced, no slower than simple ones, and refused in words."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.embedding import SGD, Adam, FeatureConfig, RowWiseAdagrad, TableConfig
from lanner.embedding.planner import Dense, Devices, Workload, estimate, plan, require_fits
from lanner.embedding.sharding import Placement, Plan
from lanner.embedding.sharding.placement import KINDS
from lanner.errors import ConfigError

FAST = Devices(4, memory=64 << 30, bandwidth=20e9, compute=100e9, link=2e9)
PROCESS = 600 << 20


def workload(rows: list[int], dim: int = 16, batch: int = 4096, **options) -> Workload:
    tables = [TableConfig(f"t{at}", count, dim) for at, count in enumerate(rows)]
    features = [FeatureConfig(table.name, table.name) for table in tables]
    return Workload.of(tables, features, options.pop("optimizer", RowWiseAdagrad()), batch, **options)


table_sets = st.lists(
    st.tuples(st.integers(1, 3_000_000), st.sampled_from([1, 6, 16, 64]), st.sampled_from(["fp32", "fp16"])),
    min_size=1,
    max_size=8,
)


@given(
    table_sets, st.sampled_from([(1, 1), (2, 1), (4, 2), (6, 3)]), st.sampled_from([SGD(), Adam(), RowWiseAdagrad()])
)
@settings(max_examples=40)
def test_every_table_lies_somewhere_and_memory_adds_up(sets, machines, optimizer) -> None:
    tables = [TableConfig(f"t{at}", rows, dim, dtype=dtype) for at, (rows, dim, dtype) in enumerate(sets)]
    features = [FeatureConfig(table.name, table.name) for table in tables]
    devices = replace(FAST, count=machines[0], nodes=machines[1])
    found = plan(Workload.of(tables, features, optimizer, 2048), devices)
    assert list(found.plan.tables) == [table.name for table in tables]
    found.plan.check(tables)
    whole = 0
    for table in tables:
        states = {SGD: 0, Adam: 2 * table.dim, RowWiseAdagrad: 1}[type(optimizer)]
        size = table.rows * (table.dim * (4 if table.dtype == "fp32" else 2) + 4 * states)
        copies = devices.count if found.plan.tables[table.name].kind == "data" else 1
        cuts = max(len(found.plan.tables[table.name].groups), 1) if states == 1 else 1  # each block has row-wise state
        whole += size * copies + (cuts - 1) * 4 * table.rows
    held = found.bytes[:3].sum()
    assert whole <= held <= whole + len(tables) * devices.count * (64 * 12 + 4)  # a share without rows has one
    figures = found.to_json()
    for rank, device in enumerate(figures["devices"]):
        parts = dict(device["bytes"])
        assert parts.pop("total") == pytest.approx(sum(parts.values()), abs=len(parts))
        assert found.held[rank] <= devices.memory
    assert found.step_seconds >= max(sum(device["seconds"].values()) for device in figures["devices"]) * (1 - 1e-9)


@given(table_sets, st.sampled_from([(2, 1), (4, 2)]))
@settings(max_examples=20)
def test_no_slower_than_plans_of_one_kind(sets, machines) -> None:
    tables = [TableConfig(f"t{at}", rows, dim, dtype=dtype) for at, (rows, dim, dtype) in enumerate(sets)]
    needs = Workload.of(tables, [FeatureConfig(table.name, table.name) for table in tables], SGD(), 2048)
    devices = replace(FAST, count=machines[0], nodes=machines[1])
    found = plan(needs, devices)
    everyone = tuple(range(devices.count))
    for placement in (Placement("row", everyone), Placement("data"), Placement("table", (0,))):
        simple = estimate(needs, Plan(devices.count, {table.name: placement for table in tables}), devices)
        assert found.step_seconds <= simple.step_seconds * 1.02


def test_one_process_holds_everything() -> None:
    found = plan(workload([10, 1000]), replace(FAST, count=1))
    assert set(found.plan.tables.values()) == {Placement("table", (0,))}
    assert found.seconds[1].max() == 0  # nothing to exchange


def test_equal_tables_are_shared_out_evenly() -> None:
    needs, devices = workload([2_000_000] * 12), replace(FAST, count=4)
    found = plan(needs, devices)
    assert found.held.max() <= 1.02 * found.held.mean()
    busy = found.seconds.sum(0)
    assert busy.max() <= 1.1 * busy.mean()


def test_a_table_too_large_for_one_device_is_cut() -> None:
    devices = replace(FAST, memory=2 << 30)
    found = plan(workload([50_000_000, 1000]), devices)  # 3.4 GB
    assert found.plan.tables["t0"].kind in ("row", "column")
    assert (found.held <= devices.memory).all()
    assert "too large for one device" in found.to_json()["tables"][0]["why"]


def test_a_hot_small_table_is_copied_where_its_gradient_is_cheaper_than_its_rows() -> None:
    found = plan(workload([4, 2_000_000], dim=64, batch=65536, hotness={"t0": 20}), replace(FAST, count=2))
    assert found.plan.tables["t0"].kind == "data"
    assert found.plan.tables["t1"].kind != "data"


def test_the_same_question_has_the_same_answer() -> None:
    needs, devices = workload([10**6, 10**5, 10**6, 7, 10**3] * 4), replace(FAST, count=8, nodes=2)
    assert plan(needs, devices).annotated().to_yaml() == plan(needs, devices).annotated().to_yaml()


def test_slow_links_between_nodes_show_in_the_time() -> None:
    needs, near = workload([10**6] * 8, dim=64), replace(FAST, nodes=2, node_link=FAST.link)
    assert plan(needs, replace(near, node_link=1e8)).step_seconds > 2 * plan(needs, near).step_seconds


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "data"])
def test_hand_made_plans_are_estimated(kind: str) -> None:
    """All kinds hold the table once; how much of it a rank holds is what the kind says."""
    placement = Placement(kind, {"table": (2,), "two-level": ((0, 1), (2, 3))}.get(kind, (0, 1, 2, 3)))
    found = estimate(workload([1000], optimizer=Adam()), Plan(4, {"t0": placement}), FAST)
    weights = 1000 * 16 * 4
    share = {"table": [0, 0, weights, 0]}.get(kind, [weights / 4] * 4)
    assert found.bytes[0].tolist() == share
    assert found.bytes[1].tolist() == [2 * each for each in share]


def test_what_does_not_fit_is_refused_with_figures() -> None:
    needs = workload([10_000_000, 50_000_000, 1000, 20_000_000], dense=Dense(weights=1000))
    with pytest.raises(ConfigError) as raised:
        plan(needs, replace(FAST, count=2, memory=1 << 30))
    text = str(raised.value)
    assert re.search(r"rank 0 needs [\d,]+ bytes \([\d.]+ GiB\), 1,073,741,824 \(1 GiB\) are free", text)
    assert "rank 1 needs" in text
    order = re.findall(r"'(t\d)'", text)
    assert set(order) <= {"t0", "t1", "t3"}
    needed = [int(number.replace(",", "")) for number in re.findall(r"needs ([\d,]+) bytes", text)]
    weights = 80_001_000 * (16 * 4 + 4)
    assert weights + 2 * PROCESS <= sum(needed) <= 1.1 * (weights + 2 * PROCESS)


def test_only_the_ranks_asked_about_are_looked_at() -> None:
    needs, of = workload([10_000_000]), Plan(2, {"t0": Placement("table", (1,))})
    free = [1 << 30, 1 << 30]
    require_fits(needs, of, free, ranks=[0])
    with pytest.raises(ConfigError, match="rank 1 needs"):
        require_fits(needs, of, free)


def test_plans_that_do_not_suit_are_named() -> None:
    needs = workload([10, 20])
    both = {"t0": Placement("data"), "t1": Placement("data")}
    with pytest.raises(ConfigError, match="it is for 2 processes, but 4 are to run"):
        estimate(needs, Plan(2, both), FAST)
    with pytest.raises(ConfigError, match="there is no table 'other'"):
        estimate(needs, Plan(4, {**both, "other": Placement("data")}), FAST)
    with pytest.raises(ConfigError, match="table 't1' has no placement"):
        estimate(needs, Plan(4, {"t0": Placement("data")}), FAST)


def test_the_yaml_form_is_read_back_with_hand_edits() -> None:
    needs = workload([1000, 2_000_000])
    found = plan(needs, FAST)
    text = found.annotated().to_yaml()
    assert dict(Plan.from_yaml(text).tables) == dict(found.plan.tables)
    entry = re.search(r"t1:\n(.*?)(?=\n  t|\Z)", text, re.DOTALL)[1]
    edited = text.replace(entry, "    kind: column\n    ranks: [0, 1, 2, 3]\n    size: whatever")
    again = estimate(needs, Plan.from_yaml(edited), FAST)
    assert again.plan.tables["t1"] == Placement("column", (0, 1, 2, 3))
    assert again.plan.tables["t0"] == found.plan.tables["t0"]
    assert np.isclose(again.bytes[0, 0], again.bytes[0].mean(), rtol=0.1)
