"""Deltas: a full dump and its deltas are the full dump of the end, and nothing else is taken for them."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from processes import run

from lanner import storage
from lanner.data.batch import Bags
from lanner.embedding import (
    SGD,
    Adagrad,
    Adam,
    DynamicConfig,
    EmbeddingCollection,
    FeatureConfig,
    RowWiseAdagrad,
    TableConfig,
    Uniform,
)
from lanner.embedding.sharding import Placement, Plan
from lanner.errors import ConfigError, DataError

NAMES = ("user", "item")
LIMITED = {"max_rows": 60, "eviction": "lru", "min_count": 2, "default": 0.5}


def make(optimizer=Adam(0.1), seed=3, track=True, plan=None, **dynamic):
    dynamic = dynamic or LIMITED
    tables = [
        TableConfig("user", "dynamic", 4, Uniform(-1, 1), dynamic=DynamicConfig(**dynamic)),
        TableConfig("item", 500, 3),
    ]
    features = [FeatureConfig("user", "user"), FeatureConfig("item", "item")]
    return EmbeddingCollection(tables, features, optimizer, seed=seed, track_changes=track, plan=plan)


def train(model, steps):
    for step in steps:
        rng = np.random.default_rng(step)
        ids = np.concatenate([np.minimum(rng.zipf(1.3, 40), 300) - 7, rng.integers(0, 500, 40)])
        out = model(Bags(NAMES, torch.from_numpy(ids)))
        (out * torch.linspace(-1, 1, out.shape[1])).sum().backward()


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write_chain(folder, model, deltas=3):
    """A full dump "0", deltas "1", "2", ... of six steps each, and the full dump "full" of the end."""
    train(model, range(10))
    model.embedding_dump(folder / "0")
    for number in range(1, deltas + 1):
        train(model, range(10 * number, 10 * number + 6))
        model.store("user").erase(np.arange(number))
        model.embedding_dump_delta(folder / f"{number}", folder / f"{number - 1}")
    model.embedding_dump(folder / "full")


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chain")
    write_chain(folder, make())
    return folder


@pytest.mark.parametrize(
    "optimizer", [SGD(0.1), Adagrad(0.1), RowWiseAdagrad(0.1), Adam(0.1)], ids=lambda o: type(o).__name__
)
def test_a_full_dump_and_its_deltas_are_the_full_dump_of_the_end(tmp_path, optimizer):
    model, twin = make(optimizer), make(optimizer, seed=9)
    write_chain(tmp_path, model)
    twin.embedding_load(tmp_path / "0")
    for number in range(1, 4):
        twin.embedding_load_delta(tmp_path / f"{number}")
    twin.embedding_dump(tmp_path / "again")
    assert contents(tmp_path / "full") == contents(tmp_path / "again")
    assert (tmp_path / "1" / "item" / "key").stat().st_size < (tmp_path / "0" / "item" / "key").stat().st_size


def test_training_and_the_chain_go_on_after_loading_it(tmp_path):
    model, twin = make(), make()
    write_chain(tmp_path, model, 1)
    twin.embedding_load(tmp_path / "0")
    twin.embedding_load_delta(tmp_path / "1")
    for each in (model, twin):
        train(each, range(50, 60))
        each.embedding_dump_delta(tmp_path / f"{id(each)}", tmp_path / "1")
    assert contents(tmp_path / f"{id(model)}") == contents(tmp_path / f"{id(twin)}")


def test_a_deleted_key_reads_the_default(chain):
    model, keys = make(), np.arange(1)
    model.embedding_load(chain / "0", optimizer_state=False)
    assert (model.store("user").weight_of(keys) != 0.5).all()
    model.embedding_load_delta(chain / "1")
    assert 0 in np.fromfile(chain / "1" / "user" / "deleted", "<i8")
    assert (model.store("user").weight_of(keys) == 0.5).all() and model.steps == 0


def test_other_uris(tmp_path):
    where = f"memory://{tmp_path.name}"
    model, twin = make(), make()
    train(model, range(5))
    model.embedding_dump(f"{where}/0")
    train(model, range(5, 8))
    model.embedding_dump_delta(f"{where}/1", f"{where}/0")
    twin.embedding_load(f"{where}/0")
    twin.embedding_load_delta(f"{where}/1")
    for name, each in (("one", model), ("two", twin)):
        each.embedding_dump(tmp_path / name)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    storage.remove(where)


def loaded(chain, *deltas):
    model = make()
    model.embedding_load(chain / "0")
    for number in deltas:
        model.embedding_load_delta(chain / f"{number}")
    return model


def refused(model, folder, message):
    """The delta is refused and nothing has changed."""
    before = {name: [rows.weights.copy() for rows in model.blocks(name)] for name in NAMES}
    with pytest.raises(DataError, match=message):
        model.embedding_load_delta(folder)
    for name in NAMES:
        assert all(map(np.array_equal, before[name], (rows.weights for rows in model.blocks(name))))


def test_gaps_and_swaps_are_named(chain):
    refused(loaded(chain, 1), chain / "3", "'user'.*this is delta 3, the table is at delta 1: delta 2 is missing")
    refused(loaded(chain), chain / "3", "this is delta 3, the table is at delta 0: deltas 1 to 2 are missing")
    refused(loaded(chain), chain / "2", "delta 1 is missing")
    refused(make(), chain / "1", "this is delta 1 of a full dump; load that one first")
    refused(loaded(chain), chain / "0", "this is a full dump, expected a delta")
    with pytest.raises(DataError, match="this is delta 1 of a full dump, expected the full dump"):
        make().embedding_load(chain / "1")


def test_a_doubled_delta_changes_nothing(chain, tmp_path):
    model = loaded(chain, 1, 2, 3, 3, 1, 2, 3)
    model.embedding_dump(tmp_path)
    assert contents(chain / "full") == contents(tmp_path)


@pytest.mark.parametrize("name", ["item/emb_vector", "item/state.first", "user/deleted", "user/waiting.count"])
def test_a_corrupt_delta_is_refused_before_anything_changes(chain, tmp_path, name):
    shutil.copytree(chain / "3", tmp_path / "3")
    data = bytearray((tmp_path / "3" / name).read_bytes())
    data[-1] ^= 64
    (tmp_path / "3" / name).write_bytes(data)
    table, file = name.split("/")
    refused(loaded(chain, 1, 2), tmp_path / "3", f"'{table}'.*{file}.*(is damaged|holds)")


def test_an_edited_or_unfinished_delta_is_refused(chain, tmp_path):
    shutil.copytree(chain / "3", tmp_path / "3")
    path = tmp_path / "3" / "user" / "table.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sequence": 2}))
    refused(loaded(chain, 1), tmp_path / "3", r"'user'.*table\.json was changed")
    path.unlink()
    refused(loaded(chain, 1, 2), tmp_path / "3", "'user'.*not a finished dump")


def test_deltas_of_another_chain_are_refused(chain, tmp_path):
    other = make(seed=8)
    write_chain(tmp_path, other, 1)
    refused(loaded(chain), tmp_path / "1", "this delta belongs to the full dump")
    model = loaded(chain, 1)
    train(model, range(70, 73))
    refused(model, chain / "2", r"trained since it was loaded \(from step 16 to 19\)")
    model.embedding_dump_delta(tmp_path / "other", chain / "1")
    refused(loaded(chain, 1, 2), tmp_path / "other", "delta 2 of another chain than the 2 loaded so far")


def test_what_is_not_known_to_have_changed_is_not_written_as_a_delta(chain, tmp_path):
    model = make(track=False)
    model.embedding_dump(tmp_path / "0")
    with pytest.raises(ConfigError, match="'item': changes are not tracked; make the collection with track_changes"):
        model.embedding_dump_delta(tmp_path / "1", tmp_path / "0")
    model.embedding_dump_delta(tmp_path / "1", tmp_path / "0", ["user"])
    model = make()
    model.embedding_load(chain / "full")
    with pytest.raises(DataError, match="'user': the keys deleted after step 16 are no longer all known"):
        model.embedding_dump_delta(tmp_path / "1", chain / "1")
    with pytest.raises(DataError, match="'item': changes are known since step 28, not since 16; dump it whole"):
        model.embedding_dump_delta(tmp_path / "1", chain / "1", ["item"])
    assert not list((tmp_path / "1" / "item").glob("table.json"))


def test_a_parent_that_cannot_be_one_is_refused(chain, tmp_path):
    model = make()
    with pytest.raises(DataError, match="it is of step 10, the model is at step 0 only"):
        model.embedding_dump_delta(tmp_path, chain / "0")
    with pytest.raises(DataError, match=r"optimizer is .*Adam.*SGD.*not a dump of this collection"):
        make(SGD(0.1)).embedding_dump_delta(tmp_path, chain / "0")
    with pytest.raises(DataError, match=r"'user'.*not a finished dump"):
        model.embedding_dump_delta(tmp_path, chain / "9")
    model = loaded(chain)
    with pytest.raises(DataError, match="over its own parent"):
        model.embedding_dump_delta(chain / "0", chain / "0")


def test_a_delta_is_not_written_over_what_it_goes_on_top_of(tmp_path):
    model = make()
    write_chain(tmp_path, model, 2)
    before = contents(tmp_path)
    train(model, range(50, 55))
    for earlier, what in (("0", "the full dump"), ("1", "delta 1")):
        with pytest.raises(DataError, match=f"{earlier}: this is {what} that delta 3 goes on top of"):
            model.embedding_dump_delta(tmp_path / earlier, tmp_path / "2")
    assert contents(tmp_path) == before
    for _ in range(2):  # the same one may be written again
        model.embedding_dump_delta(tmp_path / "3", tmp_path / "2")


def apply_and_dump(rank, chain, target, kinds):
    places = {"row": Placement("row", (0, 1)), "column": Placement("column", (1, 0)), "data": Placement("data")}
    model = make(
        plan=Plan(2, dict(zip(NAMES, (places[kind] for kind in kinds), strict=True))), default=0.5, min_count=2
    )
    model.embedding_load(f"{chain}/0")
    for number in (1, 2, 2, 3):
        model.embedding_load_delta(f"{chain}/{number}")
    model.embedding_dump(f"{target}/full")
    ids = torch.arange(20).reshape(2, 10)[rank] if kinds[1] == "row" else torch.arange(10)
    model(Bags(NAMES, torch.cat([ids, ids]))).sum().backward()
    model.embedding_dump_delta(f"{target}/4", f"{chain}/3")


@pytest.mark.parametrize("kinds", [("row", "row"), ("column", "data")])
def test_several_processes_read_and_write_deltas(tmp_path, kinds):
    write_chain(tmp_path, make(default=0.5, min_count=2))
    run(apply_and_dump, 2, str(tmp_path), str(tmp_path / "spread"), kinds)
    assert contents(tmp_path / "full") == contents(tmp_path / "spread" / "full")
    model = make(default=0.5, min_count=2)
    for number, name in enumerate(("0", "1", "2", "3", "spread/4")):
        (model.embedding_load_delta if number else model.embedding_load)(tmp_path / name)
    changed = np.fromfile(tmp_path / "spread" / "4" / "item" / "key", "<i8")
    assert changed.tolist() == list(range(20 if kinds[1] == "row" else 10))
