"""Training through `EmbeddingCollection`, against dense optimizers that know nothing of bags."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from dense_optimizers import OPTIMIZERS, DenseTable

from lanner.data.batch import Bags
from lanner.embedding import (
    SGD,
    Adagrad,
    Adam,
    Constant,
    EmbeddingCollection,
    FeatureConfig,
    TableConfig,
)
from lanner.errors import LannerError

BACKENDS = ("reference", "cpu")
backends = pytest.mark.parametrize("backend", BACKENDS)
EXTRAS = ({}, {"weight_decay": 0.1}, {"clip_norm": 1.0}, {"weight_decay": 0.1, "clip_norm": 1.0})
optimizers = pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)


def one_hot(ids, name="f"):
    return Bags((name,), torch.as_tensor(ids))


def single(rows, dim, optimizer, backend="cpu", **options):
    return EmbeddingCollection([TableConfig("t", rows, dim)], [FeatureConfig("f", "t")], optimizer, backend, **options)


@backends
@optimizers
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2, 4]], ids=["in order", "permuted"])
def test_gradients_of_equal_ids_are_summed_before_the_step(backend, optimizer, order):
    """Id 3 occurs 4 times among 6 (pytorch/FBGEMM#1545)."""
    ids, gradient = (
        torch.tensor([3, 1, 3, 3, 7, 3])[order],
        torch.randn(6, 16, generator=torch.Generator().manual_seed(1)),
    )
    collection = single(10, 16, optimizer, backend)
    dense = DenseTable(collection.weight("t").numpy(), optimizer)
    summed = np.zeros((10, 16))
    np.add.at(summed, ids.numpy(), gradient[order].double().numpy())
    for _ in range(3):
        collection(one_hot(ids)).backward(gradient[order])
        dense.step(summed, np.isin(np.arange(10), ids))
    np.testing.assert_allclose(collection.weight("t").numpy(), dense.weight, atol=1e-6)


@backends
@optimizers
@pytest.mark.parametrize("extras", EXTRAS, ids=str)
def test_20_steps_of_bags_with_shared_tables(backend, optimizer, extras):
    """Two features share a table, one has a table of another width; sum, mean, weights; a changing learning rate."""
    optimizer = replace(optimizer, **extras)
    random = np.random.default_rng(0)
    tables = [TableConfig("shared", 30, 8), TableConfig("own", 12, 3)]
    features = [FeatureConfig("a", "shared"), FeatureConfig("b", "own", "mean"), FeatureConfig("c", "shared", "mean")]
    collection = EmbeddingCollection(tables, features, optimizer, backend, seed=5)
    dense = {table.name: DenseTable(collection.weight(table.name).numpy(), optimizer) for table in tables}
    place = {"a": ("shared", 0, 8), "b": ("own", 8, 3), "c": ("shared", 11, 8)}
    for step in range(20):
        batch = int(random.integers(1, 7))
        lengths = random.integers(0, 4, 3 * batch)
        counts = lengths.reshape(3, batch).sum(1)
        ids = [random.integers(0, rows, n) for rows, n in zip((30, 12, 30), counts, strict=True)]
        weights = random.random(counts.sum(), dtype=np.float32) if step % 2 else None
        bags = Bags.from_lengths(
            ("a", "b", "c"), torch.as_tensor(np.concatenate(ids)), torch.as_tensor(lengths),
            None if weights is None else torch.as_tensor(weights),
        )  # fmt: skip
        gradient = random.standard_normal((batch, 19)).astype(np.float32)
        collection.learning_rate_scale = 1 / (1 + step)
        out = collection(bags)
        sums = {name: (np.zeros(d.weight.shape), np.zeros(len(d.weight), bool)) for name, d in dense.items()}
        at = 0
        for k, name in enumerate("abc"):
            table, column, dim = place[name]
            for sample in range(batch):
                rows = ids[k][lengths[k * batch : k * batch + sample].sum() :][: lengths[k * batch + sample]]
                scale = np.ones(len(rows)) if weights is None else weights[at : at + len(rows)].astype(float)
                scale = scale / max(len(rows), 1) if name != "a" else scale
                wanted = (dense[table].weight[rows] * scale[:, None]).sum(0)
                np.testing.assert_allclose(out[sample, column : column + dim].detach(), wanted, atol=2e-5)
                np.add.at(sums[table][0], rows, gradient[sample, column : column + dim] * scale[:, None])
                sums[table][1][rows] = True
                at += len(rows)
        out.backward(torch.as_tensor(gradient))
        for name, table in dense.items():
            table.step(*sums[name], lr_scale=1 / (1 + step))
    for name, table in dense.items():
        np.testing.assert_allclose(collection.weight(name).numpy(), table.weight, atol=2e-5)


@backends
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("ours", [Adagrad(0.1, eps=1e-10), SGD(0.5)], ids=["Adagrad", "SGD"])
def test_equals_embedding_bag_with_torch_optim(backend, ours):
    collection = single(40, 5, ours, backend)
    bag = torch.nn.EmbeddingBag.from_pretrained(collection.weight("t").clone(), freeze=False, mode="sum", sparse=True)
    kind = torch.optim.Adagrad if isinstance(ours, Adagrad) else torch.optim.SGD
    theirs, random = kind(bag.parameters(), lr=ours.lr), torch.Generator().manual_seed(0)
    for _ in range(5):
        ids, offsets = torch.randint(0, 40, (24,), generator=random), torch.arange(0, 25, 3)
        gradient = torch.randn(8, 5, generator=random)
        collection(Bags(("f",), ids, offsets)).backward(gradient)
        theirs.zero_grad()
        bag(ids, offsets[:-1]).backward(gradient)
        theirs.step()
    torch.testing.assert_close(collection.weight("t"), bag.weight.data, atol=1e-6, rtol=0)


@backends
@optimizers
def test_rows_that_did_not_occur_are_bit_identical(backend, optimizer):
    collection = single(1000, 8, optimizer, backend)
    before = collection.weight("t").clone()
    ids = torch.randperm(1000, generator=torch.Generator().manual_seed(0))[:300]
    for part in ids.split(100):
        collection(one_hot(part)).sum().backward()
    changed = (collection.weight("t") != before).any(1)
    assert set(changed.nonzero()[:, 0].tolist()) == set(ids.tolist())
    fresh = {name: form.initial for name, form in optimizer.row_states(8).items()}
    for name, state in collection.state("t").items():
        assert set((state != fresh[name]).reshape(1000, -1).any(1).nonzero()[:, 0].tolist()) == set(ids.tolist())


@backends
def test_max_pooling_sends_the_gradient_to_the_winner(backend):
    table = TableConfig("t", 4, 2)
    collection = EmbeddingCollection([table], [FeatureConfig("f", "t", "max")], SGD(1.0), backend)
    collection.weight("t").copy_(torch.tensor([[1.0, 8], [5, 2], [5, 9], [0, 0]]))
    out = collection(Bags(("f",), torch.tensor([0, 1, 2, 3]), torch.tensor([0, 3, 3, 4])))
    assert out.tolist() == [[5, 9], [0, 0], [0, 0]]
    out.sum().backward()
    assert collection.weight("t").tolist() == [[1, 8], [4, 2], [5, 8], [-1, -1]]


@backends
def test_a_model_around_it_learns_parity(backend):
    """Label = same parity of two ids: only interactions of learned rows can tell."""
    random = torch.Generator().manual_seed(0)
    tables = [TableConfig("a", 20, 8), TableConfig("b", 20, 8)]
    collection = EmbeddingCollection(tables, [FeatureConfig("a", "a"), FeatureConfig("b", "b")], Adam(0.05), backend)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = collection

        def forward(self, bags):
            left, right = self.embedding(bags).view(-1, 2, 8).unbind(1)
            return (left * right).sum(1)

    model = Model()
    for _ in range(150):
        ids = torch.randint(0, 20, (2, 256), generator=random)
        labels = ((ids[0] + ids[1]) % 2 == 0).float()
        logits = model(Bags(("a", "b"), ids.reshape(-1)))
        torch.nn.functional.binary_cross_entropy_with_logits(logits, labels).backward()
    with torch.no_grad():
        assert ((model(Bags(("a", "b"), ids.reshape(-1))) > 0).float() == labels).float().mean() > 0.99


@backends
def test_no_update_without_training(backend):
    collection = single(10, 4, SGD(1.0), backend)
    before = collection.weight("t").clone()
    with torch.no_grad():
        assert not collection(one_hot([1, 2])).requires_grad
    collection.eval()
    assert not collection(one_hot([1, 2])).requires_grad
    collection.train().requires_grad_(False)
    assert not collection(one_hot([1, 2])).requires_grad
    assert torch.equal(collection.weight("t"), before) and collection.steps == 0


def test_backward_twice_is_an_error():
    collection = single(10, 4, SGD(1.0))
    out = collection(one_hot([1, 2])).sum()
    out.backward(retain_graph=True)
    after = collection.weight("t").clone()
    with pytest.raises(LannerError, match="twice"):
        out.backward()
    out = collection(one_hot([1, 2])).sum()
    out.backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()
    assert collection.steps == 2 and torch.equal(collection.weight("t"), after - torch.eye(10)[[1, 2]].sum(0)[:, None])


def test_double_backward_is_an_error():
    collection, scale = single(10, 4, SGD(1.0)), torch.ones((), requires_grad=True)
    out = (collection(one_hot([1, 2])) * scale).pow(2).sum()
    (gradient,) = torch.autograd.grad(out, collection.anchor, create_graph=True, allow_unused=True)
    assert gradient is None or not gradient.requires_grad


def test_ids_changed_between_forward_and_backward_are_an_error():
    collection, ids = single(10, 4, SGD(1.0)), torch.tensor([1, 2])
    out = collection(one_hot(ids)).sum()
    ids[0] = 5
    with pytest.raises(RuntimeError, match="inplace"):
        out.backward()


@backends
@optimizers
def test_deferred_updates_of_two_halves_equal_one_whole_batch(backend, optimizer):
    ids, gradient = torch.tensor([3, 1, 3, 3, 7, 3]), torch.randn(6, 4, generator=torch.Generator().manual_seed(2))
    whole, halves = (single(10, 4, optimizer, backend) for _ in range(2))
    whole(one_hot(ids)).backward(gradient)
    halves.defer_updates = True
    for part in (slice(0, 2), slice(2, 6)):
        halves(Bags(("f",), ids[part], torch.arange(part.stop - part.start + 1))).backward(gradient[part] * 128)
    assert len(halves.deferred_gradients) == 2 and halves.steps == 0
    halves.apply_updates(gradient_scale=1 / 128)
    assert halves.steps == 1 and not halves.deferred_gradients
    torch.testing.assert_close(halves.weight("t"), whole.weight("t"), atol=1e-6, rtol=0)


def test_dropped_updates_leave_no_trace():
    collection = single(10, 4, Adam(0.1))
    before = collection.weight("t").clone()
    collection.defer_updates = True
    collection(one_hot([1, 2])).sum().backward()
    collection.drop_updates()
    collection.apply_updates()
    assert torch.equal(collection.weight("t"), before) and collection.steps == 0


def test_deferred_bags_of_several_features_merge_feature_by_feature():
    tables = [TableConfig("x", 9, 2, Constant(0.0)), TableConfig("y", 9, 2, Constant(0.0))]
    collection = EmbeddingCollection(tables, [FeatureConfig("x", "x"), FeatureConfig("y", "y", "max")], SGD(1.0))
    collection.defer_updates = True
    names = ("x", "y")
    collection(Bags(names, torch.tensor([1, 2, 3, 4]))).backward(torch.ones(2, 4))
    weighted = Bags.from_lengths(names, torch.tensor([1, 5, 3]), torch.tensor([2, 1]), torch.full((3,), 2.0))
    collection(weighted).backward(torch.ones(1, 4))
    collection.apply_updates()
    assert collection.weight("x")[:, 0].tolist() == [0, -3, -1, 0, 0, -2, 0, 0, 0]
    assert collection.weight("y")[:, 0].tolist() == [0, 0, 0, -3, -1, 0, 0, 0, 0]


def test_tables_may_have_optimizers_of_their_own():
    tables = [TableConfig("a", 5, 4, Constant(1.0)), TableConfig("b", 5, 4, Constant(1.0), optimizer=SGD(0.5))]
    collection = EmbeddingCollection(tables, [FeatureConfig("a", "a"), FeatureConfig("b", "b")], SGD(0.1))
    collection(Bags(("a", "b"), torch.tensor([0, 0]))).sum().backward()
    assert collection.weight("a")[0, 0] == pytest.approx(0.9) and collection.weight("b")[0, 0] == pytest.approx(0.5)
    collection.set_optimizer(Adagrad(0.2, initial_accumulator=3.0))
    assert (collection.state("a")["sum"] == 3.0).all() and collection.state("b") == {} and collection.steps == 0
