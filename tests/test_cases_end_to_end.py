"""Faults that users of such systems met, from raw rows to the end: one test a fault, through the public API."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import xxhash

import lanner as ln
from lanner.data import Loader
from lanner.data.batch import Bags, Batch
from lanner.errors import DataError
from lanner.kernels.hashing.reference import bucket
from lanner.models import RankingModel
from lanner.prep.encoder import Encoder
from lanner.prep.vocabulary import UNKNOWN
from lanner.serve.model import ServedModel
from lanner.serve.request import Request, Tensor

GOLDEN = Path(__file__).parent / "prep" / "hash_golden.json"


def criteo_rows(count: int, seed: int = 0) -> list[str]:
    draw = np.random.default_rng(seed)
    labels, numbers = draw.integers(0, 2, count), draw.integers(0, 99, (count, 13))
    keys = draw.integers(0, 40, (count, 26))
    return [
        "\t".join([str(labels[k]), *map(str, numbers[k]), *(f"{key:08x}" for key in keys[k])]) + "\n"
        for k in range(count)
    ]


def from_table(path: Path, schema: ln.Schema, columns: dict[str, Any], **options: Any) -> ln.Dataset:
    """The columns, written as Parquet and prepared."""
    pq.write_table(pa.table(columns), path.with_suffix(".parquet"))
    return ln.prep(str(path.with_suffix(".parquet")), source="parquet", schema=schema, out=path, quiet=True, **options)


def ids_of(*splits: Any, feature: int = 0) -> np.ndarray:
    """Ids of a one-hot feature in all rows of the splits."""
    columns = []
    for split in splits:
        values = split.slice(0, split.rows).bags.values.numpy()
        columns.append(values.reshape(-1, split.rows)[feature].astype(np.int64))
    return np.concatenate(columns)


def trainer_of(data: ln.Dataset, optimizer: Any = None, **options: Any) -> ln.Trainer:
    model = ln.models.DLRM(data.schema, dim=8, bottom=(16, 8), top=(16, 1))
    settings = {"embedding_optimizer": optimizer or ln.SGD(0.1), "dense_optimizer": optimizer or ln.SGD(0.1)}
    return ln.Trainer(model, quiet=True, **{**settings, **options})


class Given(RankingModel):
    """Predicts its one dense feature as the probability."""

    def __init__(self, schema: ln.Schema) -> None:
        super().__init__()
        self.schema, self.hyperparameters = schema, {}
        self.embedding = ln.EmbeddingCollection([], [])
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def head(self, dense: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        return torch.logit(dense)


def evaluate_given(path: Path, labels: Sequence[float], scores: Sequence[float]) -> tuple[ln.Trainer, ln.Dataset]:
    schema = ln.Schema(labels=({"name": "click"},), dense=({"name": "p"},))
    data = from_table(path, schema, {"click": list(labels), "p": list(scores)}, split="none")
    return ln.Trainer(Given(schema), quiet=True), data


def test_a_cut_archive_names_the_true_number_of_rows_before_the_break(tmp_path: Path) -> None:
    """A cut .gz among good ones: exit code not 0, file and rows before the break named, nothing published."""
    whole = [gzip.compress("".join(criteo_rows(1000, seed)).encode(), mtime=0) for seed in range(3)]
    cut = whole[1][:-200]
    expected = zlib.decompressobj(31).decompress(cut).count(b"\n")
    assert 0 < expected < 1000
    files = [tmp_path / f"day_{k}.gz" for k in range(3)]
    for file, content in zip(files, (whole[0], cut, whole[2]), strict=True):
        file.write_bytes(content)
    command = [sys.executable, "-m", "lanner.cli.main", "prep", *map(str, files), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    message = " ".join(done.stderr.split())
    assert done.returncode == 1, message
    assert "day_1.gz" in message and f"; {expected} rows could be read before the break" in message
    assert not (tmp_path / "out" / "manifest.json").exists()


EXTREME = [-3.0, -2.0, -1.0, 0.0, 1.0, 2147483647.0, 3000000000.0, None]


def test_extreme_numbers_are_transformed_by_the_rule_and_trained_on(tmp_path: Path) -> None:
    """Negatives, numbers beyond 32 bits and a gap: prep's values are the documented ones; training stays finite."""
    names = ("log1p_clip0", "log_shift3_missing0", "log_minus_min_plus2", "standard")
    schema = ln.Schema(
        labels=({"name": "click"},),
        dense=tuple({"name": name, "column": "x", "transform": name} for name in names),
        sparse=({"name": "id", "raw": "int", "encoder": {"kind": "identity", "size": 8}},),
    )
    columns = {"click": [0, 1] * 4, "x": EXTREME, "id": list(range(8))}
    data = from_table(tmp_path / "data", schema, columns, split="none")
    x = np.array([0.0 if value is None else value for value in EXTREME])
    shifted = np.array([0.0 if value in (None, -3.0) else np.log(value + 3) for value in EXTREME])
    by_hand = [np.log1p(np.maximum(x, 0)), shifted, np.log(x + 3 + 2), (x - x.mean()) / x.std()]
    found = data.train.slice(0, 8).dense.numpy()
    np.testing.assert_allclose(found, np.stack(by_hand, axis=1), rtol=1e-6)
    np.testing.assert_allclose(found[5:7, 0], [21.4876, 21.8219], atol=5e-5)
    for optimizer in (ln.SGD(0.1), ln.Adagrad(0.1), ln.Adam(0.01)):
        trainer = trainer_of(data, optimizer, batch_size=8, epochs=5)
        result = trainer.fit(data.train)
        assert result["train"]["steps"] == 5 and np.isfinite(result["train"]["log_loss"])
        weights = [*trainer.model.parameters(), trainer.model.embedding.weight("id")]
        assert all(bool(torch.isfinite(weight).all()) for weight in weights)


def test_a_soft_label_is_accepted_on_request_and_auc_says_how_it_counts(tmp_path: Path) -> None:
    """0.3 is an error unless the label is soft; then the result says how AUC treats such labels."""
    columns = {"click": [0.0, 1.0, 0.3, 0.8], "p": [0.2, 0.7, 0.6, 0.4]}
    with pytest.raises(DataError, match=r"0\.3"):
        from_table(tmp_path / "hard", ln.Schema(labels=({"name": "click"},), dense=({"name": "p"},)), columns)
    schema = ln.Schema(labels=({"name": "click", "soft": True},), dense=({"name": "p"},))
    data = from_table(tmp_path / "soft", schema, columns, split="none")
    found = ln.Trainer(Given(schema), quiet=True).evaluate(data.train)
    y, p = np.array(columns["click"]), np.array(columns["p"])
    pairs = np.outer(y, 1 - y)
    ordered = (p[:, None] > p[None, :]) + 0.5 * (p[:, None] == p[None, :])
    assert found["auc"] == pytest.approx((pairs * ordered).sum() / pairs.sum(), abs=1e-6)
    assert "between 0 and 1" in found["auc_note"]
    hard, rows = evaluate_given(tmp_path / "binary", [0, 1], [0.2, 0.7])
    assert "auc_note" not in hard.evaluate(rows.train)
    trained = trainer_of(data, batch_size=2).fit(data.train)
    assert np.isfinite(trained["train"]["log_loss"]) and "auc_note" in trained["train"]


def test_few_rows_run_end_to_end(tmp_path: Path) -> None:
    """37 rows in batches of 64, then two files of one row each: read, trained on and evaluated, every row.

    A split that leaves nothing to train on is an error that says so.
    """
    (tmp_path / "day_0").write_text("".join(criteo_rows(37)))
    for k in (1, 2):
        (tmp_path / f"day_{k}").write_text(criteo_rows(1, seed=k)[0])
    for name, files, rows in (("one", ["day_0"], 37), ("two", ["day_1", "day_2"], 2)):
        paths = [str(tmp_path / file) for file in files]
        data = ln.prep(paths, out=tmp_path / name, split="none", min_count=1, quiet=True)
        trainer = trainer_of(data, batch_size=64)
        assert trainer.fit(data.train)["train"]["steps"] == 1
        assert trainer.evaluate(data.train)["rows"] == rows
        assert trainer.predict(data.train).shape == (rows,)
    with pytest.raises(DataError, match="1 for valid and 1 for test leave none for training"):
        ln.prep(paths, out=tmp_path / "empty", valid=1, test=1, min_count=1, quiet=True)


@pytest.mark.parametrize("buckets", [0, 3])
def test_prep_encoder_and_exported_vocabulary_agree_on_every_id(tmp_path: Path, buckets: int) -> None:
    """10,000 tokens with gaps and unseen ones: batch prep, serving encoder and a lookup by hand; decode inverts."""
    draw = np.random.default_rng(0)
    tokens = [f"wört {value}" for value in np.minimum(draw.zipf(1.3, 10_000), 2000)]
    given = [None if gap else token for gap, token in zip(draw.random(10_000) < 0.1, tokens, strict=True)]
    encoder = {"kind": "vocab", "min_count": 2, "unknown_buckets": buckets}
    schema = ln.Schema(labels=({"name": "click"},), sparse=({"name": "word", "encoder": encoder},))
    columns = {"click": draw.integers(0, 2, 10_000), "word": given}
    data = from_table(tmp_path / "data", schema, columns, split="sequential", test=0.5)
    trainer = trainer_of(data, max_steps=1)
    trainer.fit(data.train)
    version = Path(ln.export(trainer, tmp_path / "repository", name="words"))

    table = pq.read_table(version / "vocab" / "word.parquet")
    known = dict(zip(table["value"].to_pylist(), table["id"].to_pylist(), strict=True))
    assert min(known.values()) == 1 + buckets

    def by_hand(token: str | None) -> int:
        if token is None or (token not in known and not buckets):
            return 0
        return known[token] if token in known else 1 + bucket(xxhash.xxh64_intdigest(token.encode()), 0, buckets)

    expected = [by_hand(token) for token in given]
    assert {token for token in given if token} - set(known), "some tokens must be unseen"
    assert ids_of(data.train, data.test).tolist() == expected
    served = ServedModel(version).encoder
    assert served is not None
    for trained in (Encoder.load(data.path), served):
        assert trained.encode({"word": given}).ids[0].values.tolist() == expected
    decoded = served.vocabularies["word"].decode(expected)
    for token, back in zip(given, decoded, strict=True):
        assert back == (token if token in known else UNKNOWN if token and buckets else None)


def test_served_hashed_ids_are_those_of_the_golden_file(tmp_path: Path) -> None:
    """1,000 fixed texts (empty, long, any script) in a request to a served model fall into the golden buckets."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    encoder = {"kind": "hash", "size": golden["size"], "seed": golden["seed"]}
    schema = ln.Schema(labels=({"name": "click"},), sparse=({"name": "text", "encoder": encoder},))
    data = from_table(tmp_path / "data", schema, {"click": [0, 1], "text": ["a", "b"]}, split="none")
    model = ln.models.DLRM(data.schema, dim=1, top=(1,))
    version = ln.export(ln.Trainer(model, quiet=True), tmp_path / "repository", name="hashed")
    texts = [row[0] for row in golden["rows"]]
    request = Request("hashed")
    request.add(Tensor("text", "BYTES", (len(texts), 1), pa.array(texts)))
    found = ServedModel(version).inputs.read(request).ids[:, 0].tolist()
    assert found == [1 + row[2] if row[0] else 0 for row in golden["rows"]]


def test_a_saved_table_has_every_key_of_the_data(tmp_path: Path) -> None:
    """1,003 rows of 1,003 ids in batches of 100: the saved keys are the dataset's ids and the reserved 0."""
    draw = np.random.default_rng(0)
    values = draw.permutation(1003) * 7919 - 5
    encoder = {"kind": "vocab", "min_count": 1}
    schema = ln.Schema(labels=({"name": "click"},), sparse=({"name": "item", "raw": "int", "encoder": encoder},))
    columns = {"click": draw.integers(0, 2, 1003), "item": values}
    data = from_table(tmp_path / "data", schema, columns, split="none")
    trainer = trainer_of(data, batch_size=100)
    before = trainer.model.embedding.weight("item").clone()
    assert trainer.fit(data.train)["train"]["steps"] == 11
    trainer.save(tmp_path / "saved")
    keys = np.fromfile(tmp_path / "saved" / "tables" / "item" / "key", "<i8")
    ids = ids_of(data.train)
    assert set(keys.tolist()) == set(ids.tolist()) | {0} and len(keys) == 1004
    decoded = Encoder.load(tmp_path / "saved").vocabularies["item"].decode(ids)
    assert decoded == values.tolist()
    stored = np.fromfile(tmp_path / "saved" / "tables" / "item" / "emb_vector", "<f4").reshape(1004, -1)
    assert (stored[1:] != before.numpy()[1:]).any(axis=1).all(), "the last, short batch trained too"


@pytest.fixture(scope="module")
def parity(tmp_path_factory: pytest.TempPathFactory) -> ln.Dataset:
    """Two ids of 1,000 values in tables of 1,100 rows; the label says whether they have the same parity."""
    ids = np.random.default_rng(0).integers(0, 1000, (2, 220_000))
    identity = {"kind": "identity", "size": 1100}
    schema = ln.Schema(
        labels=({"name": "same"},), sparse=tuple({"name": n, "raw": "int", "encoder": identity} for n in ("a", "b"))
    )
    columns = {"same": (ids.sum(axis=0) % 2 == 0).astype(np.int64), "a": ids[0], "b": ids[1]}
    folder = tmp_path_factory.mktemp("parity") / "data"
    return from_table(folder, schema, columns, split="sequential", test=20_000)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [ln.Adam(0.01), ln.Adagrad(0.1)], ids=["Adam", "Adagrad"])
def test_a_healthy_run_learns_and_moves_only_the_rows_that_occurred(parity: ln.Dataset, optimizer: Any) -> None:
    """5 epochs of the parity data: AUC above 0.99; rows that occurred changed, all others are bit-identical."""
    trainer = trainer_of(parity, optimizer, batch_size=1024, epochs=5)
    before = {name: trainer.model.embedding.weight(name).clone() for name in ("a", "b")}
    result = trainer.fit(parity.train)
    assert result["healthy"] and trainer.evaluate(parity.test)["auc"] > 0.99
    for feature, name in enumerate(before):
        changed = (trainer.model.embedding.weight(name) != before[name]).any(dim=1).nonzero()[:, 0]
        assert set(changed.tolist()) == set(ids_of(parity.train, feature=feature).tolist())
        assert len(changed) == 1000


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [ln.SGD(1.0), ln.Adam(1000.0)], ids=["SGD at 1", "Adam at 1000"])
def test_a_useless_run_is_flagged(parity: ln.Dataset, optimizer: Any) -> None:
    """5 epochs at a rate that teaches nothing or destroys: a verdict and `healthy` false, not a silent success."""
    result = trainer_of(parity, optimizer, batch_size=1024, epochs=5).fit(parity.train)
    assert result["verdict"] in ("no_better_than_chance", "constant", "diverged")
    assert result["healthy"] is False


@pytest.mark.parametrize("optimizer", [ln.Adagrad(0.1), ln.RowWiseAdagrad(0.1), ln.Adam(0.01)])
def test_the_order_within_a_batch_changes_nothing(tmp_path: Path, optimizer: Any) -> None:
    """Id 3 four times among six: three steps on permuted batches give the same tables within 1e-6."""
    identity = {"kind": "identity", "size": 10}
    schema = ln.Schema(
        labels=({"name": "click"},),
        dense=({"name": "x"},),
        sparse=({"name": "id", "raw": "int", "encoder": identity},),
        tables=({"name": "id", "rows": 10},),
    )
    draw, ids = torch.Generator().manual_seed(0), torch.tensor([3, 1, 3, 3, 7, 3])
    dense, labels = torch.randn(6, 1, generator=draw), torch.tensor([[0.0], [1], [1], [0], [1], [1]])
    tables = []
    for order in ([0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2, 4], [2, 5, 0, 4, 3, 1]):
        model = ln.models.DLRM(schema, dim=16, bottom=(16,), top=(16, 1))
        trainer = ln.Trainer(model, embedding_optimizer=optimizer, dense_optimizer=ln.SGD(0.1), quiet=True)
        batch = Batch(dense[order], Bags(("id",), ids[order]), labels[order])
        for _ in range(3):
            trainer.step(batch, 1.0)
        tables.append(model.embedding.weight("id").clone())
    for table in tables[1:]:
        torch.testing.assert_close(table, tables[0], atol=1e-6, rtol=0)


RAGGED = ln.Schema(
    labels=({"name": "click"},),
    sparse=tuple(
        {"name": n, "raw": "int", "encoder": {"kind": "identity", "size": 9}, "hotness": None, "separator": "|"}
        for n in ("color", "shape")
    ),
    tables=({"name": "color", "rows": 9}, {"name": "shape", "rows": 9}),
)
EIGHT = torch.arange(8)
MALFORMED = {
    "lengths sum to 7": ([0, 2, 4, 6, 7], "'shape'"),
    "lengths do not divide": ([0, 2, 4, 8], "color, shape"),
    "offsets go down": ([0, 5, 4, 6, 8], "'color'"),
    "offsets start at 1": ([1, 2, 4, 6, 8], "'color'"),
}


def test_malformed_bags_are_refused_before_any_weight_changes(tmp_path: Path) -> None:
    """Lengths and offsets that do not fit the ids: an error naming the feature, in training and in serving."""
    model = ln.models.DLRM(RAGGED, dim=4, top=(4, 1))
    trainer = ln.Trainer(model, quiet=True)
    served = ServedModel(ln.export(trainer, tmp_path / "repository", name="bags"))
    before = [weight.detach().clone() for weight in (*model.parameters(), *map(model.embedding.weight, model_tables()))]
    model.train()
    for offsets, named in MALFORMED.values():
        bags = Bags(("color", "shape"), EIGHT, torch.tensor(offsets))
        with pytest.raises(DataError, match=named):
            trainer.step(Batch(torch.empty(2, 0), bags, torch.zeros(2, 1)), 1.0)
        with pytest.raises(DataError, match=named):
            served.score(np.empty((2, 0), np.float32), bags)
    for lengths, named in (([2, 2, -1, 5], "'shape'"), ([2, 2, 2, 1], "'shape'"), ([3, 3, 2], "color, shape")):
        with pytest.raises(DataError, match=named):
            Bags.from_lengths(("color", "shape"), EIGHT, torch.tensor(lengths))
    after = (*model.parameters(), *map(model.embedding.weight, model_tables()))
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def model_tables() -> tuple[str, ...]:
    return tuple(table.name for table in RAGGED.tables)


def test_auc_is_over_all_rows_whatever_the_batch(tmp_path: Path) -> None:
    """Per-batch means would say 1.0; equal scores give 0.5."""
    trainer, data = evaluate_given(tmp_path / "data", [1, 0, 0, 0], [0.3, 0.2, 0.9, 0.8])
    for size in (1, 2, 4):
        assert trainer.evaluate(data.train, batch_size=size)["auc"] == pytest.approx(1 / 3, abs=1e-9)
    equal, rows = evaluate_given(tmp_path / "equal", [1, 0, 0, 0], [0.4] * 4)
    assert equal.evaluate(rows.train, batch_size=2)["auc"] == 0.5


def test_the_last_row_counts_as_one_row(tmp_path: Path) -> None:
    """129 rows in batches of 64: the mean of batch means would be 1.997155."""
    trainer, data = evaluate_given(tmp_path / "data", [0, 1] * 64 + [1], [0.5] * 128 + [0.01])
    assert trainer.predict(data.train, batch_size=64).shape == (129,)
    found = trainer.evaluate(data.train, batch_size=64)
    assert found["rows"] == 129 and found["log_loss"] == pytest.approx(0.723473, abs=1e-6)


def test_no_split_by_time_sees_the_future(tmp_path: Path) -> None:
    """Validation and test by time together; a token that is frequent enough only thanks to later rows is unknown."""
    schema = ln.Schema(
        labels=({"name": "click"},), dense=({"name": "when", "column": "at"},),
        sparse=({"name": "item", "encoder": {"kind": "vocab", "min_count": 2}},),
    )  # fmt: skip
    at = [5, 3, 30, 8, 20, 2, 9, 12, 31, 19, 10, 6, 25, 20]
    item = ["pen", "pen", "ink", "ink", "ink", "book", "book", "ink", "new", "new", "pen", "pen", "new", "book"]
    columns = {"click": [0, 1] * 7, "at": at, "item": item}
    first, second = 10, 20
    data = from_table(tmp_path / "data", schema, columns, split="time", time="at", valid=first, test=second)
    splits = (data.train, data.valid, data.test)
    train, valid, test = (split.slice(0, split.rows).dense[:, 0].tolist() for split in splits)
    assert max(train) < first <= min(valid) and max(valid) < second <= min(test)
    assert sorted(train + valid + test) == sorted(at)
    expected = {"pen": 1, "book": 2}  # three and two times before T1; "ink" once before and three times after
    for split, low, high in zip(splits, (0, first, second), (first, second, 99), strict=True):
        names = [name for name, time in zip(item, at, strict=True) if low <= time < high]
        assert ids_of(split).tolist() == [expected.get(name, 0) for name in names]


ORDER = """
import sys, lanner as ln
from lanner.data import Loader
split = ln.Dataset.open(sys.argv[1]).train
print([int(x) for batch in Loader(split, 64, shuffle=True, seed=7, workers=2).epoch(1) for x in batch.dense[:, 0]])
"""


def test_another_process_jumps_to_an_epoch_and_finds_its_order(tmp_path: Path) -> None:
    """1,000 numbered rows: epoch 1 alone, in a fresh process, is epoch 1 after epoch 0."""
    schema = ln.Schema(labels=({"name": "click"},), dense=({"name": "row"},))
    data = from_table(tmp_path / "data", schema, {"click": [0, 1] * 500, "row": list(range(1000))}, split="none")
    loader = Loader(data.train, 64, shuffle=True, seed=7)
    epochs = [[int(x) for batch in loader.epoch(n) for x in batch.dense[:, 0]] for n in (0, 1)]
    assert all(sorted(order) == list(range(1000)) for order in epochs) and epochs[0] != epochs[1]
    command = [sys.executable, "-c", ORDER, str(data.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert json.loads(done.stdout) == epochs[1]
