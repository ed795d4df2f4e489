"""Tables on disk train as tables in memory do, bit for bit, whatever fits into memory and whenever it comes."""

from __future__ import annotations

import gc
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lanner.data.batch import Bags
from lanner.embedding import (
    SGD,
    Adagrad,
    Adam,
    Backing,
    EmbeddingCollection,
    FeatureConfig,
    RowWiseAdagrad,
    TableConfig,
)
from lanner.embedding.backed.config import whole
from lanner.errors import ConfigError, IdRangeError, LannerError

TABLES = [TableConfig("a", 3000, 12), TableConfig("b", 500, 12), TableConfig("c", 2000, 7)]
FEATURES = [
    FeatureConfig("x", "a"),
    FeatureConfig("y", "a", "max"),
    FeatureConfig("z", "b", "mean"),
    FeatureConfig("w", "c", "none"),
]
NAMES = tuple(feature.name for feature in FEATURES)
ON_DISK = ("a", "c")
SAMPLES = 40
LITTLE, SOME, PLENTY = 50_000, 100_000, 1_000_000  # bytes for rows of "a" and "c"


def backing(memory: int, **options: Any) -> Backing:
    return Backing(whole(TABLES[1]) + memory, tables=ON_DISK, **options)


def collection(memory: int | None = None, optimizer: Any = None, **options: Any) -> EmbeddingCollection:
    """With tables on disk where `memory` is given."""
    on_disk = {} if memory is None else {"backing": backing(memory)}
    return EmbeddingCollection(TABLES, FEATURES, optimizer or Adagrad(0.1), seed=3, output="each", **on_disk, **options)


def batch(number: int, samples: int = SAMPLES) -> Bags:
    """Bags in which few ids are frequent."""
    rng = np.random.default_rng(number)
    lengths = rng.integers(0, 4, len(FEATURES) * samples)
    rows = np.repeat(np.repeat([3000, 3000, 500, 2000], samples), lengths)
    ids = torch.from_numpy((rng.random(len(rows)) ** 3 * rows).astype(np.int64))
    return Bags.from_lengths(NAMES, ids, torch.from_numpy(lengths))


def values(output: Any) -> Tensor:
    return torch.cat([(each if isinstance(each, Tensor) else each.values).flatten() for each in output.values()])


def train(model: EmbeddingCollection, steps: int = 30, ahead: int = 0, first: int = 0) -> list[Tensor]:
    """Outputs of all steps; batches are prepared so many steps ahead."""
    outputs, coming = [], []
    for step in range(first, first + steps):
        while len(coming) <= ahead and step + len(coming) < first + steps:
            coming.append(model.prepare(batch(step + len(coming))))
        output = values(model(coming.pop(0)))
        outputs.append(output.detach())
        (output.square() + output.sin()).sum().backward()
    return outputs


def rows(model: EmbeddingCollection) -> dict[str, np.ndarray]:
    found = {}
    for table in TABLES:
        blocks = list(model.blocks(table.name))
        assert np.array_equal(np.concatenate([block.keys for block in blocks]), np.arange(table.rows))
        found[table.name] = np.concatenate([block.weights for block in blocks])
        for name in blocks[0].states:
            found[f"{table.name} {name}"] = np.concatenate([block.states[name] for block in blocks])
    return found


def check_same(one: EmbeddingCollection, two: EmbeddingCollection) -> None:
    ours, theirs = rows(one), rows(two)
    assert ours.keys() == theirs.keys()
    for name, each in ours.items():
        assert np.array_equal(each, theirs[name]), name


@pytest.mark.parametrize("memory", [LITTLE, SOME, PLENTY])
@pytest.mark.parametrize("optimizer", [SGD(0.1), Adagrad(0.1, initial_accumulator=0.1), RowWiseAdagrad(0.1), Adam()])
def test_training_is_that_of_tables_in_memory(optimizer: Any, memory: int) -> None:
    model = collection(optimizer=optimizer)
    expected = train(model)
    for ahead in (0, 3):
        backed = collection(memory, optimizer)
        for step, (ours, theirs) in enumerate(zip(train(backed, ahead=ahead), expected, strict=True)):
            assert torch.equal(ours, theirs), step
        check_same(backed, model)
        assert backed.bytes() <= whole(TABLES[1]) + memory


@pytest.mark.parametrize("memory", [SOME, PLENTY])
def test_evaluation_between_steps_and_deferred_updates_change_nothing(memory: int) -> None:
    outputs = []
    models = collection(), collection(memory)
    for model in models:
        outputs.append(train(model, 5))
        model.defer_updates = True
        coming = model.prepare(batch(100))
        for _ in range(2):
            values(model(coming)).square().sum().backward()
            coming = model.prepare(batch(101))
        model.eval()
        with torch.inference_mode():
            outputs[-1] += [values(model(batch(number))) for number in range(200, 210)]
        model.train()
        model.apply_updates(0.5)
        values(model(coming)).sum().backward()
        model.drop_updates()
        model.defer_updates = False
        outputs[-1] += train(model, 5, ahead=1, first=10)
    assert all(map(torch.equal, *outputs))
    check_same(*models)


def test_rows_that_nobody_needs_any_more_make_room() -> None:
    """Batches that were prepared and dropped, and outputs without a backward, hold nothing."""
    model = collection(LITTLE)
    for number in range(30):
        model.prepare(batch(number))
        values(model(batch(number + 100)))
    gc.collect()
    expected = collection()
    assert all(map(torch.equal, train(model, 5), train(expected, 5)))


def test_evaluation_leaves_the_hot_rows_in_memory() -> None:
    model = EmbeddingCollection([TableConfig("t", 10_000, 8)], [FeatureConfig("f", "t")], backing=Backing(100_000))
    (store,) = model.stores
    hot = Bags(("f",), torch.arange(300))
    for _ in range(3):
        model(hot).sum().backward()
    model.eval()
    for begin in range(0, 10_000, 500):
        model(Bags(("f",), torch.arange(begin, begin + 500)))
    model.train()
    before = store.traffic.misses
    model(hot)
    assert store.traffic.misses == before > 0


def test_a_batch_that_does_not_fit_is_refused_with_figures() -> None:
    model = collection(LITTLE)
    train(model, 3)
    with pytest.raises(ConfigError, match=r"table 'a': a batch needs [\d,]+ rows in memory at once, .* for [\d,]+"):
        model(batch(0, samples=2000))
    expected = collection()
    train(expected, 3)
    check_same(model, expected)
    with pytest.raises(ConfigError, match=r"table 'a': .* one row alone needs"):
        collection(1000)


def test_ids_out_of_range() -> None:
    bags = Bags(NAMES, torch.tensor([5, 3000, 7, -1, 1, 2, 3, 2000]))
    with pytest.raises(IdRangeError, match=r"table 'a': id 3000 of feature 'x' \(sample 1\)"):
        collection(LITTLE)(bags)
    outputs = []
    for memory in (None, LITTLE):
        model = collection(memory, out_of_range="unknown")
        values(model(bags)).square().sum().backward()
        outputs.append(values(model(bags)))
        assert model.unknown_ids == {"x": 2, "y": 2, "z": 0, "w": 2}
    assert torch.equal(*outputs)


def test_dumps_are_those_of_tables_in_memory(tmp_path: Path) -> None:
    model, backed = collection(), collection(LITTLE)
    for each in (model, backed):
        train(each, 10)
    backed.embedding_dump(tmp_path / "dump")
    again, again_backed = collection(), collection(LITTLE)
    for each in (again, again_backed):
        each.embedding_load(tmp_path / "dump")
        check_same(each, model)
    assert all(map(torch.equal, train(again_backed, 5, first=10), train(model, 5, first=10)))


def test_changes_since_a_step() -> None:
    found = []
    for memory in (None, SOME):
        model = collection(memory, track_changes=True)
        train(model, 8)
        changed = [block for table in ("a", "c") for block in model.blocks(table, since=6)]
        parts = zip(*((block.keys, block.weights.ravel()) for block in changed), strict=True)
        found.append([np.concatenate(part) for part in parts])
    assert all(map(np.array_equal, *found)) and 0 < len(found[0][0]) < 5000
    with pytest.raises(ConfigError, match="track_changes"):
        next(collection(LITTLE).blocks("a", since=1))


def test_another_optimizer_begins_with_fresh_state() -> None:
    models = collection(), collection(LITTLE)
    for model in models:
        train(model, 10)
        model.set_optimizer(Adam(0.01))
        train(model, 10, first=10)
    check_same(*models)


def test_which_tables_live_on_disk() -> None:
    small, middle, large = (TableConfig(name, rows, 8) for name, rows in (("s", 100), ("m", 1000), ("l", 9000)))
    tables, total = [large, small, middle], sum(map(whole, (small, middle, large)))
    assert Backing(total).chosen(tables) == []
    assert Backing(total - 1).chosen(tables) == ["l"]
    assert Backing(2 * whole(small)).chosen(tables) == ["l", "m"]
    assert Backing(total, tables=["s"]).chosen(tables) == ["s"]
    shares = Backing(3 * whole(small)).shares(tables, ["l", "m"])
    assert sum(shares.values()) <= 2 * whole(small) and shares["l"] > 8 * shares["m"]
    with pytest.raises(ConfigError, match="no static table 'x'; there are l, s, m"):
        Backing(total, tables=["x"]).check(tables)
    with pytest.raises(ConfigError, match="which leaves none to m"):
        Backing(whole(large), tables=["m"]).shares(tables, ["m"])


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="memory: 'much'"):
        Backing("much")
    with pytest.raises(ConfigError, match="ahead is -1"):
        Backing("1 GiB", ahead=-1)
    with pytest.raises(ConfigError, match="nowhere' is not there"):
        Backing("1 GiB", directory=tmp_path / "nowhere")
    huge = TableConfig("t", 10**11, 256)
    with pytest.raises(ConfigError, match=r"table 't': its file of rows in .* free"):
        EmbeddingCollection([huge], [FeatureConfig("f", "t")], backing=Backing("20 GiB", directory=tmp_path))
    with pytest.raises(ConfigError, match="table 'a' lives on disk"):
        collection(LITTLE).weight("a")


def all_rows(model: EmbeddingCollection) -> np.ndarray:
    return np.concatenate([block.weights for block in model.blocks("t")])


def test_a_disk_that_fails_stops_training(tmp_path: Path) -> None:
    model = EmbeddingCollection(
        [TableConfig("t", 10_000, 8)], [FeatureConfig("f", "t")], backing=Backing(50_000, directory=tmp_path)
    )
    bags = [Bags(("f",), torch.arange(begin, begin + 400)) for begin in (9_000, 9_400, 9_000)]
    model(bags[0]).sum().backward()
    before = all_rows(model)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, limits[1]))
    try:
        with pytest.raises(LannerError, match=rf"table 't': its file of rows in {tmp_path} cannot be written: .*large"):
            for each in bags[1:]:
                model(each).sum().backward()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert np.array_equal(all_rows(model), before)
    for each in bags:
        model(each).sum().backward()
    expected = EmbeddingCollection(model.tables, model.features)
    for each in (bags[0], *bags):
        expected(each).sum().backward()
    assert np.array_equal(all_rows(model), all_rows(expected))
