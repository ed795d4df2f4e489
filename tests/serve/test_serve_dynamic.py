"""Models with dynamic tables, exported and served: any key, known or not, reads what the trained model reads."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from lanner import manifest
from lanner.data.batch import Bags
from lanner.embedding.persistence.description import Entry, read
from lanner.errors import DataError
from lanner.export import export
from lanner.models import DLRM, RankingModel
from lanner.prep.encoder import Encoder
from lanner.schema import Schema
from lanner.serve.control import Control
from lanner.serve.failure import RequestError
from lanner.serve.model import ServedModel
from lanner.serve.rows import Rows
from lanner.train import checkpoint

LOW, HIGH = np.iinfo(np.int64).min, np.iinfo(np.int64).max
SCHEMA = Schema.parse(
    {
        "labels": [{"name": "y"}],
        "dense": [{"name": "price"}],
        "sparse": [
            {"name": "user", "raw": "int", "encoder": {"kind": "key"}},
            {"name": "site", "raw": "string", "encoder": {"kind": "hash", "size": 9}},
            {"name": "tags", "encoder": {"kind": "key", "seed": 3}, "hotness": None, "separator": "|",
             "pooling": "mean"},
            {"name": "pair", "encoder": {"kind": "key", "seed": 3}, "hotness": 2, "separator": ",", "table": "tags"},
        ],
        "tables": [{"name": "user", "rows": "dynamic"}, {"name": "site", "rows": 10},
                   {"name": "tags", "rows": "dynamic"}],
    }
)  # fmt: skip
USERS = [0, -1, LOW, HIGH, 9007199254740993, 9007199254740992, 5]
TAGS = ["", "a", "ü", "x" * 300]
Tensors = dict[str, tuple[str, np.ndarray]]


def bags_of(ids: np.ndarray, tags: np.ndarray, lengths: np.ndarray, pairs: np.ndarray) -> Bags:
    """`ids` [n, 2] of user and site, `tags` [n, most] with so many in each row, `pairs` [n, 2]."""
    real = tags[np.arange(tags.shape[1]) < lengths[:, None]]
    ones = np.ones(len(ids), np.int64)
    values = np.concatenate([ids[:, 0], ids[:, 1], real, pairs.reshape(-1)])
    sizes = np.concatenate([ones, ones, lengths, 2 * ones])
    return Bags.from_lengths(("user", "site", "tags", "pair"), torch.from_numpy(values), torch.from_numpy(sizes))


def encoded(rows: int, seed: int) -> Tensors:
    """Keys of which some are known to the model and some are not."""
    rng = np.random.default_rng(seed)
    keys = np.array([0, -1, LOW, HIGH, *range(100, 110)])
    return {
        "dense": ("FP32", rng.standard_normal((rows, 1), dtype=np.float32)),
        "ids": ("INT64", np.stack([rng.choice(keys, rows), rng.integers(0, 10, rows)], 1)),
        "tags.ids": ("INT64", rng.choice(keys, (rows, 4))),
        "tags.lengths": ("INT64", rng.integers(0, 5, (rows, 1))),
        "pair.ids": ("INT64", rng.choice(keys, (rows, 2))),
    }


def given_bags(tensors: Tensors) -> Bags:
    ids, tags, lengths, pairs = (tensors[name][1] for name in ("ids", "tags.ids", "tags.lengths", "pair.ids"))
    return bags_of(ids, tags, lengths[:, 0], pairs)


def scores_of(model: RankingModel, dense: np.ndarray, bags: Bags) -> np.ndarray:
    with torch.no_grad():
        return torch.sigmoid(model.head(torch.from_numpy(dense), model.embedding(bags))).numpy()


@pytest.fixture(scope="module")
def model() -> RankingModel:
    """Trained on the extremes, on small keys up to 105, and on what the encoder makes of USERS and TAGS."""
    settings = {"tables": {"*": {"dynamic": {"default": 0.25}, "initializer": {"name": "Normal", "std": 0.5}}}}
    model = DLRM(SCHEMA, dim=8, bottom=(16, 8), top=(16, 1), seed=5, embedding=settings).train()
    pair = ["a,b"] * len(USERS)
    raw = Encoder(SCHEMA, {}).encode({"user": USERS, "tags": [TAGS[k % 4] for k in range(7)], "pair": pair}).ids
    keys = [*raw[0].values, *raw[2].values, 0, -1, LOW, HIGH, *range(100, 106)]
    for key in keys:
        ids = np.array([[key, 1]])
        bags = bags_of(ids, np.array([[key]]), np.array([1]), np.array([[key, key]]))
        model.embedding(bags).sum().backward()
    return model.eval()


def save(model: RankingModel, path: Path) -> Path:
    recipe = {
        "model": {"name": "dlrm", **model.hyperparameters},
        "embedding": model.embedding_settings.lasting(),
    }
    checkpoint.save(path, model, checkpoint.Contents(optimizer={}, trainer={"step": 0}, recipe=recipe))
    return path


@pytest.fixture(scope="module")
def keyed(model: RankingModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the model `keys`."""
    folder = tmp_path_factory.mktemp("keyed")
    export(save(model, tmp_path_factory.mktemp("checkpoint") / "last"), folder, "keys")
    return folder


@pytest.fixture(scope="module")
def running(keyed: Path, start_server: Callable[..., Any]) -> Iterator[Any]:
    server = start_server(keyed)
    yield server
    assert server.stop() == 0


@pytest.fixture(params=["http", "grpc"])
def infer(request: pytest.FixtureRequest, running: Any) -> Iterator[Callable[[Tensors], np.ndarray]]:
    module = http_client if request.param == "http" else grpc_client
    with closing(running.http_client() if request.param == "http" else running.grpc_client()) as client:

        def call(tensors: Tensors) -> np.ndarray:
            given = []
            for name, (datatype, values) in tensors.items():
                given.append(module.InferInput(name, list(values.shape), datatype))
                given[-1].set_data_from_numpy(values)
            scores: np.ndarray = client.infer("keys", given).as_numpy("score")
            return scores

        yield call


def unknown_keys(server: Any) -> dict[str, int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics") as page:
        lines = [line for line in page.read().decode().splitlines() if line.startswith("lanner_unknown_keys{")]
    return {line.split('table="')[1].split('"')[0]: int(line.split()[-1]) for line in lines}


@pytest.mark.parametrize("rows", [1, 200])
def test_encoded_keys_score_as_the_model_does(infer: Any, running: Any, model: RankingModel, rows: int) -> None:
    tensors, before = encoded(rows, rows), unknown_keys(running)
    scores = infer(tensors)
    np.testing.assert_allclose(scores, scores_of(model, tensors["dense"][1], given_bags(tensors)), rtol=0, atol=1e-6)
    asked = {"user": tensors["ids"][1][:, 0]}
    real = np.arange(4) < tensors["tags.lengths"][1]
    asked["tags"] = np.concatenate([tensors["tags.ids"][1][real], tensors["pair.ids"][1].reshape(-1)])
    for table, count in unknown_keys(running).items():
        held = model.embedding.dynamic_tables[table].keys()
        assert count - before[table] == np.count_nonzero(~np.isin(asked[table], held))


def test_raw_values_score_as_the_model_does(infer: Any, model: RankingModel) -> None:
    users, tags = [*USERS, 77, 78], ["", "a", "a|ü", "never", "x" * 300, "b|c|a", "", "ü", "a"]
    columns: dict[str, Any] = {"user": users, "tags": tags, "pair": ["a,b"] * 9, "site": ["w"] * 9}
    encoding = Encoder(SCHEMA, {}).encode(columns)
    user, site, tag, pair = (column.values.astype(np.int64) for column in encoding.ids)
    lengths = np.diff(encoding.ids[2].offsets)
    ones = np.ones(9, np.int64)
    values = np.concatenate([user, site, tag, pair])
    sizes = np.concatenate([ones, ones, lengths, 2 * ones])
    bags = Bags.from_lengths(("user", "site", "tags", "pair"), torch.from_numpy(values), torch.from_numpy(sizes))
    assert len(set(user)) == 9 and np.isin(user[:7], model.embedding.dynamic_tables["user"].keys()).all()
    request: Tensors = {"user": ("INT64", np.array(users)[:, None])}
    for name in ("tags", "pair", "site"):
        request[name] = ("BYTES", np.array(columns[name], object)[:, None])
    np.testing.assert_allclose(infer(request), scores_of(model, encoding.dense, bags), rtol=0, atol=1e-6)


def test_every_key_not_seen_in_training_reads_the_default(infer: Any) -> None:
    def scores(keys: list[int]) -> np.ndarray:
        tensors = encoded(len(keys), 1)
        tensors["dense"] = ("FP32", np.ones((len(keys), 1), np.float32))
        tensors["ids"] = ("INT64", np.array([[key, 1] for key in keys]))
        tensors["tags.lengths"] = ("INT64", np.zeros((len(keys), 1), np.int64))
        tensors["pair.ids"] = ("INT64", np.zeros((len(keys), 2), np.int64))
        return infer(tensors)[:, 0]

    unknown = scores([1, -2, LOW + 1, HIGH - 1, 2**40])
    assert np.ptp(unknown) < 1e-6
    assert (np.abs(scores([0, -1, LOW, HIGH, 100]) - unknown[0]) > 1e-6).all()


@pytest.mark.parametrize("length", [-1, 5, LOW, HIGH])
def test_a_length_that_does_not_fit_its_bag_is_named(infer: Any, running: Any, length: int) -> None:
    tensors = encoded(3, 3)
    tensors["tags.lengths"][1][2] = length
    with pytest.raises(InferenceServerException, match=f"feature 'tags': length {length} in row 2, expected 0 to 4"):
        infer(tensors)
    assert infer(encoded(3, 3)).shape == (3, 1) and running.process.poll() is None


def test_a_version_holds_no_optimizer_state_and_its_bytes_repeat(
    keyed: Path, model: RankingModel, tmp_path: Path
) -> None:
    export(save(model, tmp_path / "last"), tmp_path / "again", "keys")
    version = keyed / "keys" / "1"
    written = manifest.read(version, "repository")
    manifest.verify(version, written, checksums=True)
    tables = {name for name in written.files if name.startswith("tables/")}
    assert tables == {f"tables/{t}/{f}" for t in ("user", "site", "tags") for f in ("key", "emb_vector", "table.json")}
    for name in tables:
        assert (tmp_path / "again" / "keys" / "1" / name).read_bytes() == (version / name).read_bytes()
    keys = np.fromfile(version / "tables" / "user" / "key", "<i8")
    assert keys.tolist() == sorted(model.embedding.dynamic_tables["user"].keys().tolist())
    rows = np.fromfile(version / "tables" / "user" / "emb_vector", "<f4").reshape(-1, 8)
    np.testing.assert_array_equal(rows, model.embedding.dynamic_tables["user"].weight_of(keys))


def replace(version: Path, name: str, data: bytes) -> None:
    """Put other content into a table's file, and right checksums in all that has one."""
    path = version / "tables" / "user"
    (path / name).write_bytes(data)
    found = read(version / "tables", "user")
    measured = manifest.entry(path, name)
    entry = Entry(size=measured.size, checksum=measured.checksum)
    found.model_copy(update={"files": {**found.files, name: entry}}).write(str(path))
    written = manifest.read(version, "repository")
    files = {n: manifest.entry(version, n) for n in written.files}
    manifest.write(version, written.model_copy(update={"files": files}))


def swap_keys(version: Path) -> None:
    keys = np.fromfile(version / "tables" / "user" / "key", "<i8")
    replace(version, "key", keys[[1, 0, *range(2, len(keys))]].tobytes())


def double_a_key(version: Path) -> None:
    keys = np.fromfile(version / "tables" / "user" / "key", "<i8")
    replace(version, "key", np.array([keys[0], *keys[:-1]]).tobytes())


def flip(version: Path, name: str) -> None:
    path = version / "tables" / "user" / name
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(bytes(data))


def call_static(version: Path) -> None:
    text = json.loads((version / "tables" / "user" / "table.json").read_text())
    keys = np.arange(text["rows"])
    del text["id"], text["default"]
    (version / "tables" / "user" / "table.json").write_text(json.dumps({**text, "dynamic": False}))
    replace(version, "key", keys.tobytes())


def cut(version: Path, name: str, count: int) -> None:
    replace(version, name, (version / "tables" / "user" / name).read_bytes()[:-count])


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "doubled": (double_a_key, "table 'user' in .*the keys in key do not rise"),
    "swapped": (swap_keys, "table 'user' in .*the keys in key do not rise"),
    "short": (lambda v: cut(v, "key", 8), "table 'user' in .*key has .*rows"),
    "torn": (lambda v: cut(v, "emb_vector", 1), "table 'user' in .*emb_vector has .*bytes"),
    "key": (lambda v: flip(v, "key"), "table 'user' in .*(key is damaged|do not rise)"),
    "row": (lambda v: flip(v, "emb_vector"), "table 'user' in .*emb_vector is damaged"),
    "described": (lambda v: flip(v, "table.json"), "user/table.json"),
    "missing": (lambda v: (v / "tables" / "user" / "emb_vector").unlink(), "user/emb_vector.*missing"),
    "undescribed": (lambda v: (v / "tables" / "user" / "table.json").unlink(), "user/table.json.*missing"),
    "static": (call_static, "table 'user': the stored table has rows"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_tables_are_refused_by_name_and_the_old_version_serves_on(
    keyed: Path, model: RankingModel, tmp_path: Path, kind: str
) -> None:
    shutil.copytree(keyed, tmp_path, dirs_exist_ok=True)
    control = Control(tmp_path, explicit=True)
    control.load("keys") if kind == "row" else None
    damage, message = DAMAGE[kind]
    damaged = shutil.copytree(tmp_path / "keys" / "1", tmp_path / "keys" / "2")
    damage(damaged)
    with pytest.raises(DataError, match=message):
        ServedModel(damaged)
    if kind == "row":  # the rest is the control's, whatever the error
        with pytest.raises(RequestError, match="emb_vector is damaged"):
            control.load("keys")
        loaded = control.model("keys")
        tensors = encoded(9, 9)
        real = np.arange(4) < tensors["tags.lengths"][1]
        bags = [(tensors["tags.ids"][1][real], tensors["tags.lengths"][1][:, 0])]
        bags.append((tensors["pair.ids"][1].reshape(-1), np.full(9, 2)))
        scores = loaded.model.predict(Rows(9, tensors["dense"][1], tensors["ids"][1], bags))
        expected = scores_of(model, tensors["dense"][1], given_bags(tensors))
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-6)
        assert loaded.version == "1"
    control.stop()
