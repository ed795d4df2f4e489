"""The forms of a collection's output, and sequences, against rows taken by hand."""

from __future__ import annotations

import pytest
import torch

from lanner.data.batch import Bags
from lanner.embedding import SGD, EmbeddingCollection, FeatureConfig, TableConfig
from lanner.errors import ConfigError

NAMES = ("user", "seen", "item")
LENGTHS = torch.tensor([1, 1, 1, 3, 0, 2, 1, 1, 1])
USERS, SEEN, ITEMS = [1, 2, 3], [4, 5, 4, 6, 4], [7, 4, 9]


def collection(backend="cpu", output="each", dims=(4, 4), pooling="none"):
    tables = [TableConfig("user", 5, dims[0]), TableConfig("item", 10, dims[1])]
    features = [FeatureConfig("user", "user"), FeatureConfig("seen", "item", pooling), FeatureConfig("item", "item")]
    return EmbeddingCollection(tables, features, SGD(1.0), backend=backend, output=output)


def bags():
    return Bags.from_lengths(NAMES, torch.tensor(USERS + SEEN + ITEMS), LENGTHS)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_sequence_gives_every_row_and_trains_them_with_the_pooled_ones(backend):
    model = collection(backend, dims=(4, 3))
    before = model.weight("item").clone()
    out = model(bags())
    assert torch.equal(out["user"], model.weight("user")[USERS]) and torch.equal(out["item"], before[ITEMS])
    assert torch.equal(out["seen"].values, before[SEEN]) and out["seen"].offsets.tolist() == [0, 3, 3, 5]
    (out["seen"].values * torch.arange(5.0)[:, None]).sum().add(out["item"].sum() * 10).backward()
    wanted = torch.zeros(10, 3)
    wanted.index_add_(0, torch.tensor(SEEN), torch.arange(5.0)[:, None].expand(5, 3))
    wanted.index_add_(0, torch.tensor(ITEMS), torch.full((3, 3), 10.0))
    torch.testing.assert_close(model.weight("item"), before - wanted)
    assert model.steps == 1


def test_padding_stands_on_the_side_asked_for_and_long_sequences_keep_their_end():
    rows = collection().eval()(bags())["seen"]
    right, mask = rows.padded(2)
    left, other = rows.padded(4, side="left")
    assert mask.tolist() == [[True, True], [False, False], [True, True]]
    assert torch.equal(right[0], rows.values[1:3]) and not right[1].any()
    assert other.tolist() == [[False, True, True, True], [False] * 4, [False, False, True, True]]
    assert torch.equal(left[0, 1:], rows.values[:3]) and torch.equal(left[2, 2:], rows.values[3:])


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_forms_hold_the_same_vectors_and_train_alike(backend):
    models = {form: collection(backend, form, pooling="mean") for form in ("batch", "feature", "each")}
    outs = {form: model(bags()) for form, model in models.items()}
    stacked = torch.stack(list(outs["each"].values()))
    assert outs["feature"].shape == (3, 3, 4) and torch.equal(outs["feature"], stacked)
    assert torch.equal(outs["batch"], stacked.transpose(0, 1).reshape(3, 12))
    gradient = torch.arange(36.0).view(3, 3, 4)
    outs["feature"].backward(gradient)
    outs["batch"].backward(gradient.transpose(0, 1).reshape(3, 12))
    torch.autograd.backward(list(outs["each"].values()), list(gradient))
    for table in ("user", "item"):
        trained = [model.weight(table) for model in models.values()]
        assert torch.equal(trained[0], trained[1]) and torch.equal(trained[0], trained[2])


def test_deferred_steps_of_sequences_equal_one_step_with_the_sum():
    once, twice = collection(), collection()
    twice.defer_updates = True
    for _ in range(2):
        out = twice(bags())
        (out["seen"].values.sum() + out["user"].sum()).backward()
    twice.apply_updates()
    out = once(bags())
    (2 * (out["seen"].values.sum() + out["user"].sum())).backward()
    for table in ("user", "item"):
        torch.testing.assert_close(once.weight(table), twice.weight(table))


def test_feature_major_output_needs_one_width():
    with pytest.raises(ConfigError, match="feature 'seen': width 3, but output 'feature' needs 4 for all"):
        collection(output="feature", dims=(4, 3), pooling="sum")
