"""`EmbeddingCollection` as a module: output, errors, threads, copies, schema."""

from __future__ import annotations

import copy
import io
import pickle
import threading

import numpy as np
import pytest
import torch

from lanner.data.batch import Bags
from lanner.embedding import (
    SGD,
    Adam,
    Constant,
    EmbeddingCollection,
    FeatureConfig,
    RowWiseAdagrad,
    TableConfig,
)
from lanner.errors import ConfigError, DataError, IdRangeError
from lanner.schema import Schema

BACKENDS = ("reference", "cpu")
backends = pytest.mark.parametrize("backend", BACKENDS)


def ones_and_twos(backend="cpu", **options):
    """Two tables of 10 rows: T1 all 1.0, T2 all 2.0."""
    tables = [TableConfig("T1", 10, 4, Constant(1.0)), TableConfig("T2", 10, 4, Constant(2.0))]
    return EmbeddingCollection(tables, [FeatureConfig("a", "T1"), FeatureConfig("b", "T2")], backend=backend, **options)


def bags(ids, offsets=None, names=("a", "b")):
    return Bags(names, torch.tensor(ids), None if offsets is None else torch.tensor(offsets))


@backends
def test_features_stand_in_order_whatever_the_width_of_their_tables(backend):
    tables = [TableConfig("x", 5, 3), TableConfig("y", 6, 2), TableConfig("z", 7, 3)]
    features = [FeatureConfig(name, name) for name in ("z", "y", "x")]
    collection = EmbeddingCollection(tables, features, backend=backend)
    out = collection(bags([6, 0, 5, 1, 4, 2], names=("z", "y", "x")))
    parts = [collection.weight(n)[torch.tensor(i)] for n, i in (("z", [6, 0]), ("y", [5, 1]), ("x", [4, 2]))]
    assert collection.width == 8 and torch.equal(out, torch.cat(parts, 1))


@backends
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_bags_may_hold_more_features_in_another_order_and_narrow_integers(backend, kind):
    collection = ones_and_twos(backend)
    collection.weight("T1").copy_(torch.arange(10.0)[:, None].expand(10, 4))
    values, offsets = torch.tensor([5, 9, 3, 8, 77, 77, 7, 8], dtype=kind), torch.arange(9, dtype=kind)
    for given in (None, offsets):
        out = collection(Bags(("b", "a", "unused", "too"), values, given))
        assert out[:, 0].tolist() == [3, 8] and (out[:, 4:] == 2).all()


def test_an_empty_batch_and_no_features():
    collection = ones_and_twos()
    out = collection(Bags(("a", "b"), torch.empty(0, dtype=torch.int64)))
    assert out.shape == (0, 8)
    out.sum().backward()
    nothing = EmbeddingCollection([], [])
    assert nothing(Bags((), torch.empty(0, dtype=torch.int64))).shape == (0, 0)


@backends
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("wrong", [10, -1, 2**40])
@pytest.mark.parametrize("training", [False, True])
def test_an_id_outside_its_table_is_an_error_naming_it(backend, ragged, wrong, training):
    collection = ones_and_twos(backend).train(training)
    assert (collection(bags([9, 0]))[0, :4] == 1.0).all()
    given = bags([9, wrong, 0, 9], [0, 1, 2, 3, 4] if ragged else None)
    with pytest.raises(IdRangeError, match=rf"'T1'.*id {wrong} of feature 'a' \(sample 1\).*10 rows"):
        collection(given)
    assert (collection.weight("T1") == 1.0).all() and (collection.weight("T2") == 2.0).all()


@backends
@pytest.mark.parametrize("ragged", [False, True])
def test_unknown_mode_takes_row_0_and_counts(backend, ragged):
    collection = ones_and_twos(backend, out_of_range="unknown")
    collection.weight("T1")[0] = 0.25
    out = collection(bags([9, 10, -1, 2**40, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6, 7, 8] if ragged else None))
    assert out[:, 0].tolist() == [1.0, 0.25, 0.25, 0.25] and (out[:, 4:] == 2.0).all()
    assert collection.unknown_ids == {"a": 3, "b": 0}
    out.sum().backward()
    assert collection.weight("T1")[0, 0] == pytest.approx(0.25 - 0.01 * 3)


@backends
@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 2, 4, 6, 7], "'b': offsets end at 7, but there are 8 ids"),
        ([0, 2, 4, 8], "expected F\\*B \\+ 1"),
        ([0, 5, 4, 6, 8], "'a': sample 1 ends at 4, before its start 5"),
        ([1, 2, 4, 6, 8], "'a': offsets start at 1"),
    ],
)
def test_offsets_that_do_not_fit_are_an_error_naming_the_feature(backend, offsets, message):
    with pytest.raises(DataError, match=message):
        ones_and_twos(backend)(bags([0] * 8, offsets))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Bags(("a", "b"), torch.zeros(3, dtype=torch.int64)), "3 one-hot ids do not divide among 2"),
        (Bags(("a", "b"), torch.zeros(2)), "ids are torch.float32"),
        (Bags(("a", "b"), torch.zeros(2, 1, dtype=torch.int64)), "one dimension"),
        (Bags(("a", "b"), torch.zeros(2, dtype=torch.int64), None, torch.ones(3)), "3 weights for 2 ids"),
        (Bags(("a", "b"), torch.zeros(2, dtype=torch.int64), torch.zeros(3)), "offsets are torch.float32"),
        (Bags(("a", "c"), torch.zeros(2, dtype=torch.int64)), "feature 'b' is missing"),
        (Bags(("a", "b"), torch.zeros(2, dtype=torch.int64), None, torch.ones(2, requires_grad=True)), "no gradient"),
    ],
)
def test_unusable_bags_are_an_error(given, message):
    with pytest.raises(DataError, match=message):
        ones_and_twos()(given)


def test_configurations_that_cannot_be():
    table, feature = TableConfig("t", 3, 2), FeatureConfig("f", "t")
    for message, tables, features, options in (
        ("table 't' is given 2 times", [table, table], [feature], {}),
        ("feature 'f' is given 2 times", [table], [feature, feature], {}),
        ("no table 'u'", [table], [feature, FeatureConfig("g", "u")], {}),
        ("no feature uses it", [table, TableConfig("u", 3, 2)], [feature], {}),
        ("backend is 'tpu'", [table], [feature], {"backend": "tpu"}),
        ("output is 'row'", [table], [feature], {"output": "row"}),
        ("out_of_range is 'zero'", [table], [feature], {"out_of_range": "zero"}),
    ):
        with pytest.raises(ConfigError, match=message):
            EmbeddingCollection(tables, features, **options)
    for rows, dim in ((0, 1), (1, 0), (2.5, 1)):
        with pytest.raises(ConfigError, match="'t'"):
            TableConfig("t", rows, dim)
    with pytest.raises(ConfigError, match="pooling is 'median'"):
        FeatureConfig("f", "t", "median")


def test_an_output_still_held_is_never_overwritten():
    """Outputs come from a pool; views, arrays and autograd all hold them."""
    collection = EmbeddingCollection([TableConfig("t", 50, 64)], [FeatureConfig("f", "t")], SGD(0.0))
    ids = torch.arange(1000) % 50
    held, expected = [], []
    for turn in range(12):
        out = collection(Bags(("f",), (ids + turn) % 50))
        expected.append(collection.weight("t")[(ids + turn) % 50])
        held.append([out, out.detach().numpy(), out[10:, 3:], (out * out).sum()][turn % 4])
        del out
    for turn, (kept, wanted) in enumerate(zip(held, expected, strict=True)):
        if turn % 4 < 2:
            assert np.array_equal(torch.as_tensor(kept).detach(), wanted)
        elif turn % 4 == 2:
            assert torch.equal(kept, wanted[10:, 3:])
        else:
            assert kept.item() == pytest.approx((wanted * wanted).sum().item())
            kept.backward()  # uses the output that autograd saved


def test_threads_may_look_up_at_the_same_time():
    collection = EmbeddingCollection([TableConfig("t", 5000, 64)], [FeatureConfig("f", "t")]).eval()
    failures = []

    def client(seed):
        random = torch.Generator().manual_seed(seed)
        for _ in range(30):
            ids = torch.randint(0, 5000, (700,), generator=random)
            if not torch.equal(collection(Bags(("f",), ids)), collection.weight("t")[ids]):
                failures.append(seed)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))], ids=["deepcopy", "pickle"])
def test_copies_are_independent(copier):
    collection = EmbeddingCollection([TableConfig("t", 9, 4)], [FeatureConfig("f", "t")], RowWiseAdagrad(0.1))
    collection(bags([1, 2], names=("f",))).sum().backward()
    before = collection.weight("t").clone(), collection.state("t")["sum"].clone()
    twin = copier(collection)
    twin(bags([1, 2], names=("f",))).sum().backward()
    assert torch.equal(collection.weight("t"), before[0]) and torch.equal(collection.state("t")["sum"], before[1])
    collection(bags([1, 2], names=("f",))).sum().backward()
    assert torch.equal(collection.weight("t"), twin.weight("t")) and twin.steps == collection.steps == 2


def test_state_dict_holds_no_tables_and_loads_strictly():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), ones_and_twos())
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    assert list(model.state_dict()) == ["0.weight", "0.bias"]
    model.load_state_dict(torch.load(file, weights_only=True), strict=True)


def test_bytes_counts_weights_and_state():
    table, features = TableConfig("t", 100, 16), [FeatureConfig("f", "t")]
    for optimizer, floats in ((SGD(), 16), (RowWiseAdagrad(), 17), (Adam(), 48)):
        assert EmbeddingCollection([table], features, optimizer).bytes() == 100 * 4 * floats


def test_from_schema():
    schema = Schema.parse(
        {
            "sparse": [
                {"name": "a", "table": "t", "raw": "int", "encoder": {"kind": "hash", "size": 7}},
                {"name": "b", "table": "t", "raw": "int", "encoder": {"kind": "hash", "size": 7}, "pooling": "mean"},
                {"name": "c", "raw": "int", "encoder": {"kind": "identity", "size": 5}},
            ],
            "tables": [{"name": "t", "rows": 8}, {"name": "c", "rows": 5}],
        }
    )
    collection = EmbeddingCollection.from_schema(schema, 16, Adam(0.1), Constant(1.0), seed=3)
    assert [(t.name, t.rows, t.dim) for t in collection.tables] == [("t", 8, 16), ("c", 5, 16)]
    assert [f.pooling for f in collection.features] == ["sum", "mean", "sum"] and collection.width == 48
    assert (collection.weight("t") == 1.0).all() and collection.optimizer == Adam(0.1)


def test_an_unfitted_schema_is_an_error():
    schema = Schema.parse({"sparse": [{"name": "a"}], "tables": [{"name": "a", "rows": None}]})
    with pytest.raises(ConfigError, match="table 'a': the schema does not give its rows"):
        EmbeddingCollection.from_schema(schema, 4)


def test_a_sequence_feature_needs_an_output_of_its_own():
    schema = Schema.parse({"sparse": [{"name": "a", "pooling": "none"}], "tables": [{"name": "a", "rows": 4}]})
    with pytest.raises(ConfigError, match="feature 'a': with pooling 'none' the output must be 'each'"):
        EmbeddingCollection.from_schema(schema, 4)


def test_an_unknown_table_name_is_named():
    with pytest.raises(KeyError, match="T9"):
        ones_and_twos().weight("T9")


def test_things_of_another_kind_are_refused_by_name():
    tables, features = [TableConfig("d", "dynamic", 4)], [FeatureConfig("f", "d")]
    with pytest.raises(ConfigError, match=r"optimizer is .*Adam.*, expected one of lanner\.embedding"):
        EmbeddingCollection(tables, features, optimizer=torch.optim.Adam)
    collection = EmbeddingCollection(tables, features)
    with pytest.raises(DataError, match=r"bags: got Tensor, expected Bags"):
        collection(torch.tensor([1]))
