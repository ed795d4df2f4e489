"""Dumps: their layout, round trips on any URI, and every way they can be wrong."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest
import torch
from processes import Failure, outcomes_of

from lanner import storage
from lanner.data.batch import Bags
from lanner.embedding import (
    SGD,
    Adagrad,
    Adam,
    EmbeddingCollection,
    FeatureConfig,
    RowWiseAdagrad,
    TableConfig,
    joint,
)
from lanner.embedding.optimizers import RowState
from lanner.embedding.persistence import files
from lanner.embedding.persistence.description import Description
from lanner.errors import DataError

OPTIMIZERS = (SGD(0.1), Adagrad(0.1), RowWiseAdagrad(0.1), Adam(0.1))


def make(optimizer=RowWiseAdagrad(0.1), rows=(700, 20), dims=(8, 3), seed=0):
    tables = [TableConfig(n, r, d) for n, r, d in zip("ab", rows, dims, strict=True)]
    return EmbeddingCollection(tables, [FeatureConfig("a", "a"), FeatureConfig("b", "b")], optimizer, seed=seed)


def train(collection, steps=3):
    for step in range(steps):
        collection(Bags(("a", "b"), torch.tensor([5, 6 + step, 7, 8]))).sum().backward()
    return collection


def same(one, two):
    return all(
        torch.equal(x, y)
        for name in "ab"
        for x, y in zip(
            (one.weight(name), *one.state(name).values()), (two.weight(name), *two.state(name).values()), strict=True
        )
    )


@pytest.fixture(params=["local", "memory"])
def path(request, tmp_path):
    uri = str(tmp_path / "dump") if request.param == "local" else f"memory://{tmp_path.name}/dump"
    yield uri
    storage.remove(uri)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: type(o).__name__)
def test_round_trip_and_training_goes_on_as_if_nothing_had_happened(path, optimizer, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 1000 * 8)  # several blocks a file
    monkeypatch.setattr(joint, "_BLOCK", 1000 * 8)
    collection = train(make(optimizer))
    collection.embedding_dump(path)
    twin = make(optimizer, seed=1)
    twin.embedding_load(path)
    assert same(collection, twin) and twin.steps == 3
    assert same(train(collection), train(twin))


def test_layout_of_the_files(tmp_path):
    collection = train(make())
    collection.embedding_dump(tmp_path)
    folder = tmp_path / "a"
    assert sorted(file.name for file in folder.iterdir()) == ["emb_vector", "key", "state.sum", "table.json"]
    assert np.array_equal(np.fromfile(folder / "key", "<i8"), np.arange(700))
    assert np.array_equal(np.fromfile(folder / "emb_vector", "<f4").reshape(700, 8), collection.weight("a"))
    assert np.array_equal(np.fromfile(folder / "state.sum", "<f4"), collection.state("a")["sum"])
    description = json.loads((folder / "table.json").read_text())
    assert {key: description[key] for key in ("rows", "dim", "dtype", "steps")} == {
        "rows": 700, "dim": 8, "dtype": "float32", "steps": 3,
    }  # fmt: skip
    assert description["optimizer"]["name"] == "RowWiseAdagrad"


def test_chosen_tables_only(tmp_path):
    collection, twin = train(make()), make(seed=1)
    collection.embedding_dump(tmp_path, ["a"])
    assert not (tmp_path / "b").exists()
    before = twin.weight("b").clone()
    twin.embedding_load(tmp_path, ["a"])
    assert torch.equal(twin.weight("a"), collection.weight("a")) and torch.equal(twin.weight("b"), before)
    with pytest.raises(DataError, match="no table 'c'"):
        collection.embedding_dump(tmp_path, ["c"])
    with pytest.raises(DataError, match=r"'b'.*no table\.json"):
        twin.embedding_load(tmp_path)


def test_weights_alone_on_request(tmp_path):
    collection, twin = train(make()), make(Adam(0.1), seed=1)
    collection.embedding_dump(tmp_path)
    with pytest.raises(DataError, match=r"'a'.*RowWiseAdagrad, the model uses Adam; pass optimizer_state=False"):
        twin.embedding_load(tmp_path)
    twin.embedding_load(tmp_path, optimizer_state=False)
    assert torch.equal(twin.weight("b"), collection.weight("b")) and twin.steps == 0
    assert not twin.state("a")["first"].any()


def damage_truncate(folder):
    (folder / "emb_vector").write_bytes((folder / "emb_vector").read_bytes()[:-4])


def damage_flip(folder):
    data = bytearray((folder / "emb_vector").read_bytes())
    data[5] ^= 1
    (folder / "emb_vector").write_bytes(data)


def damage_state(folder):
    (folder / "state.sum").unlink()


def damage_unfinished(folder):
    (folder / "table.json").unlink()


def damage_description(folder):
    (folder / "table.json").write_text("{")


def rewrite(folder, name, values):
    """Put other values in a file, as whoever makes dumps by hand would."""
    (folder / name).write_bytes(values.tobytes())
    description = json.loads((folder / "table.json").read_text())
    description["files"][name] = {"size": values.nbytes, "checksum": storage.checksum(folder / name)}
    del description["id"]
    (folder / "table.json").write_text(json.dumps(description))


def damage_keys(folder):
    rewrite(folder, "key", np.arange(20)[::-1].astype("<i8"))


def damage_missing_key(folder):
    rewrite(folder, "key", np.delete(np.arange(21), 9).astype("<i8"))


def damage_more_states(folder):
    rewrite(folder, "state.sum", np.zeros(23, "<f4"))


def damage_nan(folder):
    weights = np.fromfile(folder / "emb_vector", "<f4")
    weights[13 * 3 + 1] = np.nan
    rewrite(folder, "emb_vector", weights)


def damage_infinity(folder):
    rewrite(folder, "state.sum", np.where(np.arange(20) == 7, -np.inf, 0).astype("<f4"))


def damage_edited(folder):
    text = (folder / "table.json").read_text()
    (folder / "table.json").write_text(text.replace('"steps": 3', '"steps": 4'))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_truncate, "'b'.*emb_vector has 236 bytes, expected 240"),
        (damage_flip, "'b'.*emb_vector .* checksum"),
        (damage_state, "'b'.*state.sum is missing; pass optimizer_state=False"),
        (damage_unfinished, "'b'.*not a finished dump"),
        (damage_description, "'b'.*table.json is not valid"),
        (damage_keys, "'b'.*key does not count the rows"),
        (damage_missing_key, r"'b'.*key does not count the rows 0\.\.19"),
        (damage_more_states, r"'b'.*state.sum has 92 bytes, expected 80 \(23 rows, expected 20\)"),
        (damage_nan, "'b'.*emb_vector of key 13 holds nan"),
        (damage_infinity, "'b'.*state.sum of key 7 holds -inf"),
        (damage_edited, "'b'.*table.json was changed"),
    ],
)
def test_a_damaged_table_is_refused_by_name(tmp_path, damage, message):
    train(make()).embedding_dump(tmp_path)
    damage(tmp_path / "b")
    with pytest.raises(DataError, match=message):
        make(seed=1).embedding_load(tmp_path)


def test_another_size_is_refused_before_anything_changes(tmp_path):
    make().embedding_dump(tmp_path)
    for other, message in (
        (make(rows=(700, 21)), "'b'.*rows is 20, the model expects 21"),
        (make(dims=(8, 4)), "dim is 3"),
    ):
        before = other.weight("a").clone()
        with pytest.raises(DataError, match=message):
            other.embedding_load(tmp_path)
        assert torch.equal(other.weight("a"), before)


def test_an_interrupted_overwrite_does_not_look_finished(tmp_path, monkeypatch):
    collection = make()
    collection.embedding_dump(tmp_path)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(files.Output, "append", fail)
    with pytest.raises(OSError, match="disk full"):
        collection.embedding_dump(tmp_path)
    with pytest.raises(DataError, match="not a finished dump"):
        collection.embedding_load(tmp_path)


def write_until_killed(rank, path, where):
    def end(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    if where == "rows":
        files.Output.append = end
    elif where == "close":
        files.Output.close = end
    else:
        Description.write = end
    make().embedding_dump(path)


@pytest.mark.parametrize("where", ["rows", "close", "description"])
def test_a_killed_writer_leaves_nothing_that_looks_finished(tmp_path, where):
    collection = train(make())
    collection.embedding_dump(tmp_path)
    assert isinstance(outcomes_of(write_until_killed, 1, str(tmp_path), where)[0], Failure)
    twin = make(seed=1)
    with pytest.raises(DataError, match=r"'a'.*not a finished dump"):
        twin.embedding_load(tmp_path)
    collection.embedding_dump(tmp_path)
    twin.embedding_load(tmp_path)
    assert same(collection, twin)
    left = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert left == ["emb_vector", "key", "state.sum", "table.json"]


def test_states_may_be_whole_numbers_and_files_of_other_states_go(tmp_path, monkeypatch):
    make(Adam(0.1)).embedding_dump(tmp_path)
    forms = {"sum": RowState((8,)), "step": RowState((), "int32")}
    monkeypatch.setattr(Adagrad, "row_states", lambda self, dim: forms | {"sum": RowState((dim,))})
    collection, twin = make(Adagrad(0.1)), make(Adagrad(0.1), seed=1)
    collection.state("a")["step"][:] = torch.arange(2**31 - 700, 2**31).int()
    collection.embedding_dump(tmp_path)
    twin.embedding_load(tmp_path)
    assert same(collection, twin) and twin.state("a")["step"].dtype is torch.int32
    assert np.fromfile(tmp_path / "a" / "state.step", "<i4")[-1] == 2**31 - 1
    assert not (tmp_path / "a" / "state.first").exists()
