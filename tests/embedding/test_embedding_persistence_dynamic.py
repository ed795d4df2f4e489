"""Dumps of dynamic tables: training goes on as if nothing had happened, and dumps may be made meanwhile."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from lanner.data.batch import Bags
from lanner.embedding import SGD, Adagrad, Adam, DynamicConfig, EmbeddingCollection, FeatureConfig, TableConfig, Uniform
from lanner.embedding.dynamic import transfer
from lanner.errors import DataError

NAMES = ("user", "item")
ANY = Uniform(-1, 1)


def make(optimizer=Adam(0.1), seed=3, dim=4, track=False, **dynamic):
    tables = [
        TableConfig("user", "dynamic", dim, ANY, dynamic=DynamicConfig(**dynamic)),
        TableConfig("item", 10, 3),
    ]
    features = [FeatureConfig("user", "user"), FeatureConfig("item", "item")]
    return EmbeddingCollection(tables, features, optimizer, seed=seed, track_changes=track)


def bags(step, most=300):
    rng = np.random.default_rng(step)
    users = np.minimum(rng.zipf(1.3, 40), most).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return Bags(NAMES, torch.from_numpy(np.concatenate([users.view(np.int64), rng.integers(0, 10, 40)])))


def train(model, steps):
    outputs = []
    for step in steps:
        out = model(bags(step))
        (out * torch.linspace(-1, 1, out.shape[1]) * torch.sin(3 * out)).sum().backward()
        outputs.append(out.detach())
    return torch.stack(outputs)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("optimizer", [SGD(0.1), Adagrad(0.1), Adam(0.1)], ids=lambda o: type(o).__name__)
@pytest.mark.parametrize(
    "dynamic",
    [
        {},
        {"max_rows": 60, "eviction": "lru"},
        {"max_rows": 60, "eviction": "lfu"},
        {"ttl_steps": 3},
        {"min_count": 3, "max_waiting": 40},
        {"min_count": 2, "probability": 0.5, "max_rows": 50, "ttl_steps": 5, "default": 0.5},
    ],
    ids=str,
)
def test_training_goes_on_as_if_nothing_had_happened(tmp_path, optimizer, dynamic):
    model, twin = make(optimizer, **dynamic), make(optimizer, **dynamic)
    train(model, range(12))
    model.embedding_dump(tmp_path / "one")
    train(twin, range(100, 103))  # is forgotten
    twin.embedding_load(tmp_path / "one")
    assert twin.steps == 12 and twin.store("user").counters == model.store("user").counters
    twin.embedding_dump(tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert torch.equal(train(model, range(12, 24)), train(twin, range(12, 24)))
    assert twin.store("user").counters == model.store("user").counters
    for each in (model, twin):
        each.embedding_dump(tmp_path / f"{id(each)}")
    assert contents(tmp_path / f"{id(model)}") == contents(tmp_path / f"{id(twin)}")


def test_files_can_be_read_with_numpy(tmp_path):
    model = make(max_rows=60, min_count=2)
    train(model, range(9))
    model.embedding_dump(tmp_path)
    folder, store = tmp_path / "user", model.store("user")
    keys = np.fromfile(folder / "key", "<i8")
    assert (keys[1:] > keys[:-1]).all() and set(keys.tolist()) == set(store.keys().tolist())
    assert np.array_equal(np.fromfile(folder / "emb_vector", "<f4").reshape(-1, 4), store.weight_of(keys))
    blocks = list(model.blocks("user"))
    order = np.argsort(np.concatenate([rows.keys for rows in blocks]))
    for name, kind in (("state.first", "<f4"), ("meta.used", "<i8"), ("meta.count", "<i8")):
        expected = np.concatenate([rows.states[name.removeprefix("state.")] for rows in blocks])[order]
        assert np.array_equal(np.fromfile(folder / name, kind).reshape(expected.shape), expected)
    waiting, counts, _ = store.waiting()
    order = np.argsort(waiting)
    assert np.array_equal(np.fromfile(folder / "waiting.key", "<i8"), waiting[order])
    assert np.array_equal(np.fromfile(folder / "waiting.count", "<i8"), counts[order])


def test_weights_alone_begin_new_lives(tmp_path):
    model, other = make(Adam(0.1)), make(SGD(0.1), max_rows=300, eviction="lru")
    train(model, range(5))
    model.embedding_dump(tmp_path)
    train(other, range(50, 51))
    other.embedding_load(tmp_path, optimizer_state=False)
    keys = model.store("user").keys()
    assert np.array_equal(other.store("user").weight_of(keys), model.store("user").weight_of(keys))
    assert len(other.store("user")) == len(keys) and other.steps == 1
    assert all((rows.states["meta.count"] == 1).all() for rows in other.blocks("user"))
    with pytest.raises(DataError, match=r"'user'.*Adam, the model uses SGD"):
        other.embedding_load(tmp_path)


def test_a_table_that_is_too_small_or_of_another_kind_is_refused(tmp_path):
    model = make(Adagrad(0.1))
    train(model, range(5))
    model.embedding_dump(tmp_path)
    rows = len(model.store("user"))
    with pytest.raises(DataError, match=f"'user'.*{rows} rows .* room for 10"):
        make(Adagrad(0.1), max_rows=10).embedding_load(tmp_path)
    static = EmbeddingCollection([TableConfig("user", 10, 4)], [FeatureConfig("user", "user")], Adagrad(0.1))
    with pytest.raises(DataError, match=r"'user'.*the stored table is dynamic, the model's is static"):
        static.embedding_load(tmp_path)
    (tmp_path / "user" / "waiting.count").unlink()
    with pytest.raises(DataError, match=r"'user'.*waiting\.count is missing"):
        make(Adagrad(0.1)).embedding_load(tmp_path)


def test_dumps_during_training_hold_the_same_keys_everywhere(tmp_path, monkeypatch):
    """Rows are written whole: where the weights have moved, so has the state, in every block."""
    monkeypatch.setattr(transfer, "_BLOCK", 1 << 9)
    model, stop, errors = make(Adagrad(0.1), dim=2, max_rows=200, eviction="lru"), threading.Event(), []

    def trainer():
        try:
            step = 0
            while not stop.is_set():
                model(bags(step, 2000)).sum().backward()
                step += 1
        except Exception as error:  # shown by the test itself
            errors.append(error)

    thread = threading.Thread(target=trainer)
    thread.start()
    try:
        for _ in range(100):
            model.embedding_dump(tmp_path, ["user"])
            copy = make(Adagrad(0.1), dim=2, max_rows=200, eviction="lru")
            copy.embedding_load(tmp_path, ["user"])
            for rows in copy.blocks("user"):
                moved = rows.states["sum"]
                assert len(moved) == len(rows.weights) == len(rows.states["meta.used"])
                assert np.isfinite(rows.weights).all() and (np.abs(rows.weights) < 1e6).all()
                assert (moved == np.round(moved)).all() and (rows.states["meta.count"] >= 1).all()
    finally:
        stop.set()
        thread.join()
    assert not errors and model.store("user").counters.evicted > 0 and model.steps > 20
