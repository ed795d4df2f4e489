"""Global Adam: tables trained by batches that name few of their rows end where dense Adam does."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from processes import run
from sharded_training import tables_of

from lanner.data.batch import Bags
from lanner.embedding import SGD, Adam, Backing, Constant, EmbeddingCollection, FeatureConfig, TableConfig
from lanner.embedding.sharding import Placement, Plan
from lanner.errors import ConfigError

ROWS, DIM = 40, 6
GLOBAL = Adam(0.05, (0.9, 0.98), 1e-6, mode="global")
KINDS = [ROWS, "dynamic"]


def factor(step):
    """Warm-up, then decay."""
    return min(1.0, step / 8) * 0.97**step


def batch(step, bags=9):
    """Bags of up to 3 ids; some rows are away for long, row 39 for ever."""
    random = np.random.default_rng(step)
    top = ROWS - 1 if step % 7 == 0 else 8
    lengths = random.integers(0, 4, bags)
    ids = random.integers(0, top, lengths.sum())
    return Bags.from_lengths(("f",), torch.from_numpy(ids), torch.from_numpy(lengths))


def collection(rows=ROWS, optimizer=GLOBAL, name="t", **options):
    table = TableConfig(name, rows, DIM)
    return EmbeddingCollection([table], [FeatureConfig("f", name)], optimizer, **options)


def loss(out):
    return (out**2 + torch.linspace(-1, 1, DIM) * torch.sin(3 * out)).sum()


def train(model, begin, end):
    for step in range(begin, end):
        model.learning_rate_scale = factor(step)
        loss(model(batch(step))).backward()


def weights(model):
    return np.concatenate([rows.weights for rows in model.blocks("t")])


class Dense:
    """The table as a dense weight of `torch.optim.Adam`."""

    def __init__(self, first):
        self.weight = torch.nn.Parameter(torch.from_numpy(first.copy()))
        self.optimizer = torch.optim.Adam([self.weight], GLOBAL.lr, GLOBAL.betas, GLOBAL.eps)

    def look_up(self, bags):
        return torch.nn.functional.embedding_bag(bags.values, self.weight, bags.offsets[:-1], mode="sum")

    def train(self, begin, end):
        for step in range(begin, end):
            self.optimizer.param_groups[0]["lr"] = GLOBAL.lr * factor(step)
            self.optimizer.zero_grad()
            loss(self.look_up(batch(step))).backward()
            if self.weight.grad is None:
                self.weight.grad = torch.zeros_like(self.weight)
            self.optimizer.step()


def with_all_rows(rows):
    """A collection in which every row has been seen, with a gradient of 0, and the dense one of its weights."""
    model = collection(rows)
    everything = Bags(("f",), torch.arange(ROWS))
    first = model(everything)
    (0 * first).sum().backward()
    dense = Dense(first.detach().numpy())
    dense.weight.grad = torch.zeros_like(dense.weight)
    dense.optimizer.step()
    return model, dense


@pytest.mark.parametrize("rows", KINDS)
def test_equals_dense_adam_with_a_schedule(rows):
    model, dense = with_all_rows(rows)
    for end in (9, 10, 33, 60):
        begin = model.steps
        train(model, begin, end)
        dense.train(begin, end)
        if end < 60:
            bags = batch(1000 + end, 30)
            with torch.no_grad():
                np.testing.assert_allclose(model(bags).numpy(), dense.look_up(bags).numpy(), atol=2e-6)
    np.testing.assert_allclose(weights(model), dense.weight.detach().numpy(), atol=2e-6)
    lazy = collection(rows, Adam(GLOBAL.lr, GLOBAL.betas, GLOBAL.eps))
    train(lazy, 1, 60)
    assert np.abs(weights(lazy) - weights(model)[: len(weights(lazy))]).max() > 0.01


@pytest.mark.parametrize("rows", KINDS)
def test_training_reads_rows_that_are_up_to_date(rows):
    model, dense = with_all_rows(rows)
    for step in range(1, 40):
        model.learning_rate_scale = factor(step)
        out = model(batch(step))
        np.testing.assert_allclose(out.detach().numpy(), dense.look_up(batch(step)).detach().numpy(), atol=2e-6)
        loss(out).backward()
        dense.train(step, step + 1)


@pytest.mark.parametrize("rows", KINDS)
def test_two_backward_passes_after_two_forward_passes(rows):
    """The second step finds rows that have missed the first."""
    model, dense = with_all_rows(rows)
    train(model, 1, 5)
    dense.train(1, 5)
    model.learning_rate_scale = factor(5)
    outputs = [model(Bags(("f",), torch.tensor(ids))) for ids in ([1, 2, 2], [3, 1])]
    for step, (ids, out) in enumerate(zip(([1, 2, 2], [3, 1]), outputs, strict=True)):
        out.backward(torch.ones_like(out))
        dense.optimizer.param_groups[0]["lr"] = GLOBAL.lr * factor(5)
        dense.weight.grad = torch.zeros_like(dense.weight).index_add_(0, torch.tensor(ids), torch.ones(len(ids), DIM))
        dense.optimizer.step()
        assert model.steps == 6 + step
    np.testing.assert_allclose(weights(model), dense.weight.detach().numpy(), atol=2e-6)


@pytest.mark.parametrize("rows", KINDS)
def test_a_dump_goes_on_exactly(rows, tmp_path):
    model, other = collection(rows), collection(rows)
    train(model, 1, 30)
    model.embedding_dump(tmp_path / "dump")
    train(other, 1, 12)  # what it held before does not matter
    other.embedding_load(tmp_path / "dump")
    copied, pickled = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    for each in (model, other, copied, pickled):
        train(each, 30, 50)
        assert np.array_equal(weights(each), weights(model)) and each.steps == 49
    model.embedding_load(tmp_path / "dump")  # back in time
    train(model, 30, 50)
    assert np.array_equal(weights(model), weights(other))


@pytest.mark.parametrize("rows", KINDS)
def test_deltas_hold_the_rows_that_moved(rows, tmp_path):
    model, served = (collection(rows, track_changes=rows != "dynamic") for _ in range(2))
    train(model, 1, 15)
    model.embedding_dump(tmp_path / "base")
    train(model, 15, 20)
    model.embedding_dump_delta(tmp_path / "delta", tmp_path / "base")
    served.embedding_load(tmp_path / "base")
    served.embedding_load_delta(tmp_path / "delta")
    for one, two in zip(model.blocks("t"), served.blocks("t"), strict=True):
        assert np.array_equal(one.weights, two.weights) and np.array_equal(one.keys, two.keys)
        assert all(np.array_equal(one.states[name], two.states[name]) for name in one.states)


def test_loading_one_table_leaves_others_their_absence(tmp_path):
    """The steps that the loaded table's dump counts more are none that the others missed."""
    tables = [TableConfig("t", ROWS, DIM), TableConfig("u", ROWS, DIM + 1)]
    features = [FeatureConfig("f", "t"), FeatureConfig("g", "u")]
    far = collection()
    train(far, 1, 40)
    far.embedding_dump(tmp_path / "far")
    model = EmbeddingCollection(tables, features, GLOBAL)
    for _ in range(5):
        model(Bags(("f", "g"), torch.tensor([1, 2, 3, 4]))).sum().backward()
    before = model.weight("u").clone()
    model.embedding_load(tmp_path / "far", ["t"])
    assert model.steps == 39 and torch.equal(model.weight("u"), before)
    assert np.array_equal(model.weight("t").numpy(), weights(far))
    model(Bags(("f", "g"), torch.tensor([7, 7]))).sum().backward()
    moved = (model.weight("u") != before).any(1)
    assert moved.nonzero()[:, 0].tolist() == [3, 4, 7]


def test_rows_without_gradients_so_far_do_not_move():
    model = collection()
    first = model.weight("t").clone()
    train(model, 1, 30)
    assert torch.equal(model.weight("t")[ROWS - 1], first[ROWS - 1]) and model.state("t")["step"][ROWS - 1] == 0


@pytest.mark.parametrize("rows", KINDS)
def test_tables_of_16_bits_follow_as_near_as_their_format_allows(rows):
    models = []
    for dtype in ("fp32", "bf16"):
        table = TableConfig("t", rows, DIM, Constant(0.5), dtype=dtype)
        models.append(EmbeddingCollection([table], [FeatureConfig("f", "t")], GLOBAL))
        train(models[-1], 1, 40)
    whole, half = (weights(model) for model in models)
    assert np.abs(whole - half).max() < 0.1 and np.abs(whole - 0.5).mean() > 0.1


def test_a_new_optimizer_begins_anew():
    model, fresh = collection(), collection()
    train(model, 1, 20)
    model.set_optimizer(GLOBAL)
    with torch.no_grad():
        fresh.weight("t").copy_(model.weight("t"))
    for each in (model, fresh):
        train(each, 1, 20)
    assert np.array_equal(weights(model), weights(fresh))
    model.set_optimizer(SGD(0.1))
    assert model.state("t") == {}


def test_ids_out_of_range_take_row_0():
    model = collection(out_of_range="unknown")
    for step in range(1, 12):
        model(Bags(("f",), torch.tensor([-1, ROWS, 2**40] if step % 3 else [5]))).sum().backward()
    assert model.state("t")["step"][:6].tolist() == [11, 0, 0, 0, 0, 11] and model.unknown_ids["f"] == 24


def spread(rank, kinds):
    """What each rank has of the table after training on its half of the bags under each kind of plan."""
    outcomes = []
    for kind, rows in kinds:
        placement = Placement(kind, {"data": (), "table": (1,)}.get(kind, (0, 1)))
        model = collection(rows, plan=Plan(2, {"t": placement}))
        for step in range(1, 35):
            model.learning_rate_scale = factor(step)
            bags = batch(step, 10)
            half = [torch.arange(0, 5), torch.arange(5, 10)][rank]
            lengths = bags.offsets.diff()
            ids = torch.cat([bags.values[bags.offsets[i] : bags.offsets[i + 1]] for i in half])
            (2 * loss(model(Bags.from_lengths(("f",), ids, lengths[half])))).backward()
        outcomes.append(tables_of(model))
    return outcomes


def test_two_processes_train_as_one():
    kinds = [("row", ROWS), ("column", ROWS), ("table", ROWS), ("data", ROWS), ("row", "dynamic")]
    ranks = run(spread, 2, kinds)
    for at, (kind, rows) in enumerate(kinds):
        alone = collection(rows)
        for step in range(1, 35):
            alone.learning_rate_scale = factor(step)
            loss(alone(batch(step, 10))).backward()
        for block in alone.blocks("t"):
            expected = dict(zip(block.keys.tolist(), block.weights, strict=True))
            for part in (outcomes[at] for outcomes in ranks):
                columns = part.get("columns of t")
                for key, row in zip(part.get("table t keys", ()), part.get("table t weights", ()), strict=True):
                    np.testing.assert_allclose(row, expected[int(key)][columns], atol=2e-6, err_msg=str((kind, key)))
        if kind == "data":
            assert np.array_equal(ranks[0][at]["table t weights"], ranks[1][at]["table t weights"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Adam(mode="dense"), "Adam: mode is 'dense', expected lazy or global"),
        (lambda: Adam(mode="global", weight_decay=0.1), "weight_decay is 0.1, expected 0 with mode 'global'"),
        (lambda: Adam(betas=(0.99, 0.9), mode="global"), r"betas\[0\]\^2 < betas\[1\] with mode 'global'"),
        (lambda: collection(backing=Backing("100 kB", tables=("t",))), "table 't' lives on disk: .*expected 'lazy'"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
