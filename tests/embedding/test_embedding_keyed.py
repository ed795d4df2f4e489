"""Dynamic tables inside a collection: keys in training and evaluation, beside static tables."""

from __future__ import annotations

import pytest
import torch

from lanner.data.batch import Bags
from lanner.embedding import Adagrad, DynamicConfig, EmbeddingCollection, FeatureConfig, TableConfig, Uniform

NAMES = ("user", "item", "seen")
KEYS = [5, -1, 2**63 - 1, -(2**63), 0, 5, 7, 7, 8]


def collection(rows, **dynamic):
    config = DynamicConfig(**dynamic) if dynamic else None
    tables = [TableConfig("user", rows, 4, Uniform(-1, 1), dynamic=config), TableConfig("item", 10, 4)]
    features = [FeatureConfig("user", "user"), FeatureConfig("item", "item"), FeatureConfig("seen", "user", "mean")]
    return EmbeddingCollection(tables, features, Adagrad(0.1), seed=3)


def bags(users, seen, items=(1, 2, 3)):
    lengths = torch.tensor([1, 1, 1, 1, 1, 1, 2, 0, 1])
    return Bags.from_lengths(NAMES, torch.tensor([*users, *items, *seen]), lengths)


def test_a_dynamic_table_trains_as_a_static_one_whose_rows_are_its_keys():
    static, dynamic = collection(50), collection("dynamic")
    steps = [bags([9, 3, 9], [3, 4, 9]), bags([40, 3, 1], [49, 9, 9]), bags([9, 9, 9], [1, 2, 3])]
    for given in steps:
        outs = [model(given) for model in (static, dynamic)]
        torch.testing.assert_close(*outs)
        for out in outs:
            (out * torch.arange(36.0).view(3, 12)).sum().backward()
    static.eval(), dynamic.eval()
    torch.testing.assert_close(static(steps[0]), dynamic(steps[0]))
    assert torch.equal(static.weight("item"), dynamic.weight("item"))


def test_any_key_gets_a_row_in_training_and_the_default_in_evaluation():
    model = collection("dynamic", default=0.5)
    model(bags(KEYS[:3], KEYS[3:6])).sum().backward()
    model.eval()
    known = model(bags(KEYS[:3], KEYS[3:6]))
    assert (known[:, :4] != 0.5).all()
    assert (model(bags([100, 101, 102], [103, 104, 105]))[:, :4] == 0.5).all()
    assert model.stores[-1].counters.inserted == 5


@pytest.mark.parametrize("eviction", ["none", "lru"])
def test_a_limit_holds_and_the_counters_add_up(eviction):
    model = collection("dynamic", max_rows=4, eviction=eviction)
    for first in range(0, 30, 3):
        model(bags([first, first + 1, first + 2], [first, first, first + 2])).sum().backward()
    counters, size = model.stores[-1].counters, len(model.stores[-1])
    assert size <= 4 and counters.inserted - counters.evicted == size
    assert (counters.evicted == 0) == (eviction == "none")
    assert counters.inserted + counters.refused_full >= 30
