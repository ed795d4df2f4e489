"""Dumps by several processes: the same bytes as by one, and any number of processes may go on from them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from processes import Failure, outcomes_of, run

from lanner.data.batch import Bags
from lanner.embedding import Adam, DynamicConfig, EmbeddingCollection, FeatureConfig, RowWiseAdagrad, TableConfig
from lanner.embedding.persistence import files
from lanner.embedding.sharding import Placement, Plan

TABLES = [
    TableConfig("a", 41, 8),
    TableConfig("b", 3, 8, optimizer=RowWiseAdagrad(0.1)),
    TableConfig("c", "dynamic", 4, dynamic=DynamicConfig(min_count=2)),
]
FEATURES = [FeatureConfig("a", "a"), FeatureConfig("b", "b", "mean"), FeatureConfig("c", "c")]
ROWS = (41, 3, 60)
STEPS = 8
KINDS = (
    ("row", "data", "row"),
    ("column", "row", "two-level"),
    ("two-level", "column", "table"),
    ("data", "table", "column"),
    ("table", "two-level", "row"),
)


def plan(ranks: int, kinds: tuple[str, ...]) -> Plan:
    everyone = tuple(range(ranks))
    ways = {
        "data": (),
        "table": (ranks - 1,),
        "two-level": (everyone[: ranks // 2], everyone[ranks // 2 :]) if ranks > 1 else (everyone,),
    }
    return Plan(ranks, {t.name: Placement(k, ways.get(k, everyone)) for t, k in zip(TABLES, kinds, strict=True)})


def make(kinds: tuple[str, ...] | None) -> EmbeddingCollection:
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    return EmbeddingCollection(TABLES, FEATURES, Adam(0.1), plan=plan(ranks, kinds) if kinds else None)


def train(model: EmbeddingCollection, rank: int, steps: range, spread: bool = True) -> None:
    """Equal gradients whoever has which sample: all ids at most once, whole-number weights of the loss."""
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    for step in steps:
        rng = np.random.default_rng(step)
        ids = np.stack([rng.permutation(max(rows, 12))[:12] % rows for rows in ROWS])
        own = np.array_split(np.arange(12), ranks)[rank]
        mine = [torch.from_numpy(ids[:, own].reshape(-1))]
        out = model(Bags(tuple("abc"), *mine))
        (ranks * out * torch.linspace(-1, 1, out.shape[1])).sum().backward()


def contents(folder: str | Path) -> dict[str, bytes]:
    folder = Path(folder)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def reload_and_dump(rank: int, source: str, targets: dict[str, tuple[str, ...]], small: bool) -> None:
    """Load one dump into a collection of each plan, and dump it again."""
    if small:
        files.BLOCK = 300
    for target, kinds in targets.items():
        model = make(kinds)
        model.embedding_load(source)
        model.embedding_dump(target)
        if rank == 0:
            assert contents(source) == contents(target)


def go_on(rank: int, source: str, target: str, kinds: tuple[str, ...] | None, steps: range) -> None:
    model = make(kinds)
    if source:
        model.embedding_load(source)
    train(model, rank, steps)
    model.embedding_dump(target)


def assert_close(one: Path, two: Path) -> None:
    """Equal keys and counts, and values equal but for the order of sums."""
    for table in TABLES:
        first, second = (contents(path / table.name) for path in (one, two))
        assert first.keys() == second.keys()
        for name in first.keys() - {"table.json"}:
            if name.split(".")[0] in ("emb_vector", "state"):
                values = [np.frombuffer(each[name], "<f4") for each in (first, second)]
                np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-6, err_msg=f"{table.name}/{name}")
                assert name == "emb_vector" or values[0].any()
            else:
                assert first[name] == second[name], f"{table.name}/{name}"
        counters = [json.loads(each["table.json"]).get("counters") for each in (first, second)]
        assert counters[0] == counters[1]


def test_dumps_do_not_tell_how_many_processes_wrote_them(tmp_path):
    go_on(0, "", str(tmp_path / "one"), None, range(STEPS))
    targets = {str(tmp_path / f"two-{at}"): kinds for at, kinds in enumerate(KINDS)}
    run(reload_and_dump, 2, str(tmp_path / "one"), targets, True)


@pytest.mark.slow
def test_nor_do_those_of_four_and_three(tmp_path):
    go_on(0, "", str(tmp_path / "one"), None, range(STEPS))
    for ranks in (4, 3):
        kinds = [each for each in KINDS if ranks == 4 or not {"two-level", "column"} & {*each}]
        targets = {str(tmp_path / f"{ranks}-{at}"): each for at, each in enumerate(kinds)}
        run(reload_and_dump, ranks, str(tmp_path / "one"), targets, False)


@pytest.mark.slow
def test_training_goes_on_with_other_processes_and_plans(tmp_path):
    whole, half = tmp_path / "whole", tmp_path / "half"
    go_on(0, "", str(whole), None, range(2 * STEPS))
    run(go_on, 2, "", str(half), KINDS[1], range(STEPS))
    for at, (ranks, kinds) in enumerate([(4, KINDS[2]), (2, KINDS[0]), (4, KINDS[3])]):
        run(go_on, ranks, str(half), str(tmp_path / f"{at}"), kinds, range(STEPS, 2 * STEPS))
        assert_close(whole, tmp_path / f"{at}")
    go_on(0, str(half), str(tmp_path / "alone"), None, range(STEPS, 2 * STEPS))
    assert_close(whole, tmp_path / "alone")


def fail_on_one(rank: int, folder: str, failing: str) -> None:
    model = make(("row", "row", "row"))
    if failing == "dump" and rank == 0:
        files.Output.append = _full  # type: ignore[method-assign]
    if failing == "read" and rank == 1:
        model.blocks = _full  # type: ignore[method-assign]
    if failing in ("dump", "read"):
        model.embedding_dump(folder)
    if failing == "load" and rank == 1:
        model.place = _full  # type: ignore[method-assign]
    if failing == "load":
        model.embedding_dump(folder)
        model.embedding_load(folder)


def _full(*_: object) -> None:
    raise OSError("no space left")


@pytest.mark.parametrize(("failing", "rank"), [("dump", 0), ("read", 1), ("load", 1)])
def test_an_error_in_one_process_is_raised_in_all(tmp_path, failing, rank):
    outcomes = outcomes_of(fail_on_one, 2, str(tmp_path), failing)
    assert all(isinstance(outcome, Failure) for outcome in outcomes)
    assert outcomes[rank].kind == "OSError" and outcomes[1 - rank].kind == "LannerError"
    assert f"rank {rank}: no space left" in outcomes[1 - rank].text
    assert failing == "load" or not list(tmp_path.rglob("table.json"))
