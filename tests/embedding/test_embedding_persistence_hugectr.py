"""HugeCTR's files, made here byte by byte as their format is documented."""

from __future__ import annotations

import struct

import pytest
import torch
from processes import run

from lanner.data.batch import Bags
from lanner.embedding import SGD, EmbeddingCollection, FeatureConfig, TableConfig
from lanner.embedding.persistence import hugectr
from lanner.embedding.sharding import Placement, Plan
from lanner.errors import DataError

NAMES = ("user", "item")
KEYS = [7, -3, 2**40, 0]
VECTORS = [[float(10 * row + column) for column in range(4)] for row in range(4)]


def make(plan=None):
    tables = [TableConfig("user", "dynamic", 4), TableConfig("item", 9, 3)]
    return EmbeddingCollection(tables, [FeatureConfig(name, name) for name in NAMES], SGD(0.1), plan=plan)


def trained(model=None):
    model = model or make()
    model(Bags(NAMES, torch.tensor([5, -9, 2**50, 3, 1, 8]))).sum().backward()
    return model


def rows_of(blocks):
    return {int(k): w.tolist() for rows in blocks for k, w in zip(rows.keys, rows.weights, strict=True)}


def floats(rows):
    return b"".join(struct.pack("<f", value) for row in rows for value in row)


def write_model(folder, keys=KEYS, vectors=VECTORS):
    folder.mkdir()
    (folder / "key").write_bytes(b"".join(struct.pack("<q", key) for key in keys))
    (folder / "emb_vector").write_bytes(floats(vectors))
    (folder / "slot_id").write_bytes(b"".join(struct.pack("<Q", key % 3) for key in keys))
    return folder


def write_collection(path, wide_keys=True, half=False):
    """Tables 4 (of two rows and three columns) and 2 (of three rows and four columns)."""
    folder = path / "embedding_collection_1"
    folder.mkdir(parents=True)
    meta = struct.pack("<5i", 2, int(wide_keys), int(half), 0, 4) + struct.pack("<2i", 4, 2)
    (folder / "meta_data").write_bytes(meta + struct.pack("<2Q", 2, 3) + struct.pack("<2i", 3, 4))
    for at, (table, keys, rows) in enumerate([(4, [8, 1], [[1, 2, 3], [4, 5, 6]]), (2, [9, 11, 10], VECTORS[:3])]):
        head = [struct.pack("<2i", kind, table) + bytes(120) for kind in (1, 2)]
        packed = b"".join(struct.pack("<q" if wide_keys else "<I", key) for key in keys)
        (folder / f"key{at}").write_bytes(head[0] + packed)
        values = b"".join(struct.pack("<e" if half else "<f", value) for row in rows for value in row)
        (folder / f"weight{at}").write_bytes(head[1] + values)
    return folder


def test_a_model_directory_is_read_into_a_dynamic_and_a_static_table(tmp_path):
    model, folder = trained(), write_model(tmp_path / "m")
    before = model.weight("item").clone()
    stored = hugectr.model(folder)
    assert (stored.rows, stored.dim) == (4, 4) and hugectr.slots(folder).tolist() == [1, 0, 1, 0]
    small = hugectr.model(write_model(tmp_path / "small", [8, 2], [[1, 2, 3], [4, 5, 6]]))
    hugectr.load(model, {"user": stored, "item": small})
    assert rows_of(model.blocks("user")) == dict(zip(KEYS, VECTORS, strict=True))
    assert model.weight("item")[[8, 2]].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert torch.equal(model.weight("item")[[0, 1, 3]], before[[0, 1, 3]]) and model.steps == 1


@pytest.mark.parametrize("wide_keys", [True, False])
@pytest.mark.parametrize("half", [True, False])
def test_an_embedding_dump_is_read(tmp_path, wide_keys, half):
    write_collection(tmp_path, wide_keys, half)
    stored = hugectr.collection(tmp_path, 1)
    assert {at: (each.rows, each.dim) for at, each in stored.items()} == {4: (2, 3), 2: (3, 4)}
    model = make()
    hugectr.load(model, {"user": stored[2], "item": stored[4]})
    assert rows_of(model.blocks("user")) == dict(zip([9, 11, 10], VECTORS, strict=False))
    assert model.weight("item")[[8, 1]].tolist() == [[1, 2, 3], [4, 5, 6]]


def test_what_is_written_has_the_documented_bytes(tmp_path):
    model = trained()
    hugectr.dump_model(model, "user", tmp_path / "m", slot=5)
    hugectr.dump_collection(model, tmp_path)
    found = rows_of(model.blocks("user"))
    keys = sorted(found)
    packed = b"".join(struct.pack("<q", key) for key in keys)
    assert (tmp_path / "m" / "key").read_bytes() == packed
    assert (tmp_path / "m" / "emb_vector").read_bytes() == floats(found[key] for key in keys)
    assert (tmp_path / "m" / "slot_id").read_bytes() == struct.pack("<Q", 5) * 3
    folder = tmp_path / "embedding_collection_0"
    assert (folder / "meta_data").read_bytes() == (
        struct.pack("<5i", 2, 1, 0, 0, 4)
        + struct.pack("<2i", 0, 1)
        + struct.pack("<2Q", 3, 9)
        + struct.pack("<2i", 4, 3)
    )
    assert (folder / "key0").read_bytes() == struct.pack("<2i", 1, 0) + bytes(120) + packed
    assert (folder / "weight1").read_bytes() == struct.pack("<2i", 2, 1) + bytes(120) + floats(
        model.weight("item").tolist()
    )


def test_both_layouts_round_trip_and_so_does_a_dump(tmp_path):
    model = trained()
    hugectr.dump_collection(model, f"memory://{tmp_path.name}", number=3)
    hugectr.dump_model(model, "item", tmp_path / "m")
    model.embedding_dump(tmp_path / "own")
    stored = hugectr.collection(f"memory://{tmp_path.name}", 3)
    for tables in (
        {"user": stored[0], "item": stored[1]},
        {"user": hugectr.model(tmp_path / "own" / "user"), "item": hugectr.model(tmp_path / "m")},
    ):
        twin = make()
        hugectr.load(twin, tables)
        assert all(rows_of(twin.blocks(name)) == rows_of(model.blocks(name)) for name in NAMES)


def load_and_dump(rank, source, target):
    model = make(Plan(2, {"user": Placement("row", (0, 1)), "item": Placement("table", (1,))}))
    stored = hugectr.collection(source)
    hugectr.load(model, {"user": stored[0], "item": stored[1]})
    hugectr.dump_collection(model, target)


def test_several_processes_read_and_write_the_same_bytes(tmp_path):
    hugectr.dump_collection(trained(), tmp_path / "one")
    run(load_and_dump, 2, str(tmp_path / "one"), str(tmp_path / "two"))
    for path in (tmp_path / "one" / "embedding_collection_0").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / "embedding_collection_0" / path.name).read_bytes()


def cut(path, count):
    path.write_bytes(path.read_bytes()[:-count])


def test_files_that_do_not_fit_are_refused_by_name(tmp_path):
    folder = write_model(tmp_path / "m")
    cut(folder / "emb_vector", 4)
    with pytest.raises(DataError, match=r"m/emb_vector: 60 bytes are no float32 rows of equal length for 4 keys"):
        hugectr.model(folder)
    cut(folder / "key", 3)
    with pytest.raises(DataError, match=r"m/key: 29 bytes, expected 24 \(3 rows of 8 bytes\)"):
        hugectr.model(folder)
    (folder / "key").unlink()
    with pytest.raises(DataError, match="m/key: no such file"):
        hugectr.model(folder)
    folder = write_collection(tmp_path)
    (folder / "key1").write_bytes((folder / "weight1").read_bytes())
    with pytest.raises(DataError, match="key1: its header says kind 2 of table 2, expected kind 1 of table 2"):
        hugectr.collection(tmp_path, 1)
    cut(folder / "meta_data", 1)
    with pytest.raises(DataError, match="meta_data: 51 bytes, 2 tables"):
        hugectr.collection(tmp_path, 1)


def test_rows_that_do_not_fit_the_table_are_refused_before_anything_changes(tmp_path):
    model = trained()
    stored = hugectr.model(write_model(tmp_path / "m"))
    narrow = hugectr.model(write_model(tmp_path / "narrow", [8, 9], [[1, 2, 3], [4, 5, 6]]))
    before = [rows_of(model.blocks(name)) for name in NAMES]
    for tables, message in (
        ({"user": stored, "item": stored}, "table 'item': dim of .*m/emb_vector is 4, expected 3"),
        ({"user": stored, "item": narrow}, "table 'item': .*narrow/key holds key 9, expected 0 to 8"),
        ({"user": stored, "other": stored}, "there is no table 'other'"),
    ):
        with pytest.raises(DataError, match=message):
            hugectr.load(model, tables)
    assert before == [rows_of(model.blocks(name)) for name in NAMES]


def test_a_table_that_is_not_there_leaves_what_lies_at_its_place(tmp_path):
    hugectr.dump_model(make(), "item", tmp_path / "item")
    with pytest.raises(DataError, match="there is no table 'items'"):
        hugectr.dump_model(make(), "items", tmp_path / "item")
    assert hugectr.model(tmp_path / "item").rows > 0
