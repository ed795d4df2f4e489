"""Routes of ids among ranks, all played in one process: every bag must find its rows in the buffers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lanner.data.batch import Bags
from lanner.embedding import FeatureConfig, TableConfig
from lanner.embedding.sharding import Placement, Plan
from lanner.embedding.sharding.routes import Router, Routes
from lanner.embedding.sharding.shards import held_by
from lanner.errors import IdRangeError

TABLES = [TableConfig("a", 11, 4), TableConfig("b", 5, 8), TableConfig("c", 3, 4), TableConfig("d", 7, 8)]
FEATURES = [FeatureConfig(name, name[0]) for name in ("a", "b", "a2", "c", "d", "d2")]
NAMES = ("d2", "unused", "a", "b", "a2", "d", "c")
PLAN = Plan(
    4,
    {
        "a": Placement("row", (2, 0, 3)),
        "b": Placement("two-level", ((0, 1), (3, 2))),
        "c": Placement("data"),
        "d": Placement("column", (1, 2, 0, 3)),
    },
)


def refuse(_: Bags) -> None:
    raise AssertionError("no id is out of range")


def random_bags(rng: np.random.Generator, batch: int, one_hot: bool, weighted: bool) -> Bags:
    lengths = np.ones((len(NAMES), batch), int) if one_hot else rng.integers(0, 4, (len(NAMES), batch))
    rows = {table.name: table.rows for table in TABLES}
    ids = [rng.integers(0, rows.get(name[0], 1000), n) for name, n in zip(NAMES, lengths.sum(1), strict=True)]
    values = torch.from_numpy(np.concatenate(ids).astype(np.int64))
    weights = torch.rand(values.numel()) if weighted else None
    if one_hot:
        return Bags(NAMES, values, None, weights)
    return Bags.from_lengths(NAMES, values, torch.from_numpy(lengths.reshape(-1)), weights)


def value(table: str, row: int) -> np.ndarray:
    """The row of a made-up table."""
    dim = next(each.dim for each in TABLES if each.name == table)
    return ord(table) * 1000 + row * 10 + np.arange(dim) / 10


def owner_answers(rank: int, source: int, routes: Routes, router: Router) -> list[np.ndarray]:
    """For each channel the rows that `rank` sends back to `source`."""
    skip = int(routes.sizes[:rank].sum())
    ids, held = routes.ids.numpy()[skip:], held_by(rank, PLAN, TABLES)
    answers = []
    for channel in router.channels:
        rows = []
        for number in channel.held[rank]:
            mine, ids = ids[: routes.sizes[rank, number]], ids[routes.sizes[rank, number] :]
            shard = held[TABLES[number].name]
            assert (mine < shard.config.rows).all()
            if not channel.replicated or rank == source:
                rows += [value(shard.table.name, int(key))[shard.columns] for key in shard.keys(mine)]
        answers.append(np.array(rows).reshape(-1, channel.width))
    return answers


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("batch", "one_hot", "weighted"), [(6, True, False), (5, False, True), (0, False, False)])
def test_every_bag_finds_its_rows(batch: int, one_hot: bool, weighted: bool, training: bool) -> None:
    rng = np.random.default_rng(batch)
    for rank in range(4):
        router, bags = Router(TABLES, FEATURES, PLAN, rank), random_bags(rng, batch, one_hot, weighted)
        routes = router.route(bags, training, refuse)
        answers = [owner_answers(owner, rank, routes, router) for owner in range(4)]
        buffers = [np.concatenate(parts) for parts in zip(*answers, strict=True)]
        assert tuple(map(len, buffers)) == routes.rows
        _check_lines(bags, routes, router, buffers)


def _check_lines(bags: Bags, routes: Routes, router: Router, buffers: list[np.ndarray]) -> None:
    covered: dict[str, int] = {}
    for at, line in enumerate(routes.lines):
        places, lengths, weights = _piece(routes.bags, at)
        ids, expected_lengths, expected_weights = _piece(bags, bags.names.index(line.feature))
        assert np.array_equal(lengths, expected_lengths)
        assert np.array_equal(weights, expected_weights)
        width = router.channels[line.channel].width
        columns = slice(line.column, line.column + width)
        for place, key in zip(places, ids, strict=True):
            assert np.array_equal(buffers[line.channel][place], value(line.feature[0], key)[columns])
        covered[line.feature] = covered.get(line.feature, 0) + width
    dims = {table.name: table.dim for table in TABLES}
    assert covered == {feature.name: dims[feature.table] for feature in FEATURES}


def _piece(bags: Bags, at: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    batch = bags.batch_size
    offsets = np.arange(len(bags.names) * batch + 1) if bags.offsets is None else bags.offsets.numpy()
    own = offsets[at * batch : (at + 1) * batch + 1]
    weights = np.ones(len(bags.values)) if bags.weights is None else bags.weights.numpy()
    return bags.values.numpy()[own[0] : own[-1]], np.diff(own), weights[own[0] : own[-1]]


def test_an_id_is_sent_once_to_each_rank_that_holds_a_part_of_it() -> None:
    bags = Bags(("a", "a2", "b", "c", "d", "d2"), torch.tensor([4, 4, 4, 4, 2, 2, 1, 1, 6, 6, 6, 6]))
    router = Router(TABLES, FEATURES, PLAN, 0)
    sizes = router.route(bags, True, refuse).sizes
    assert sizes.sum(0).tolist() == [1, 2, 4, 4]  # one share, two blocks, all ranks, four blocks
    assert router.route(bags, False, refuse).sizes.sum(0).tolist() == [1, 2, 1, 4]
    assert sizes[0, 0] == 1  # 4 % 3 = 1: the second rank of the row-wise table


def test_ids_out_of_range_are_found_before_anything_is_sent() -> None:
    bags = Bags(tuple(feature.name for feature in FEATURES), torch.tensor([4, 4, 11, 2, 6, 6]))
    router, seen = Router(TABLES, FEATURES, PLAN, 0), []

    def stop(bags: Bags) -> None:
        raise IdRangeError("table 'a'")

    with pytest.raises(IdRangeError):
        router.route(bags, True, stop)
    routes = router.route(bags, True, seen.append)
    assert len(seen) == 1
    assert sorted(routes.ids[: int(routes.sizes[0].sum())].tolist()) == sorted([1, 2, 2, 6])  # a: 4 // 3; b, c, d


def test_keys_of_dynamic_tables_travel_whole_with_their_number_of_occurrences() -> None:
    tables = [TableConfig("wild", "dynamic", 4), TableConfig("a", 11, 4)]
    plan = Plan(2, {"wild": Placement("row", (0, 1)), "a": Placement("table", (1,))})
    extremes = [-(2**63), 2**63 - 1, -1, 0, 5, 7, 8]
    keys = torch.tensor([*extremes, *extremes[:3]])
    bags = Bags.from_lengths(("wild", "a"), torch.cat([keys, torch.tensor([9])]), torch.tensor([10, 1]))
    routes = Router(tables, [FeatureConfig("wild", "wild"), FeatureConfig("a", "a")], plan, 0).route(bags, True, refuse)
    assert routes.sizes[:, 0].min() > 0
    sent = {(key, times) for key, times in routes.ids.tolist()}
    assert sent == {*((key, 2) for key in extremes[:3]), *((key, 1) for key in extremes[3:]), (9, 1)}
