"""A backward that comes after the step of another batch, whose keys took the rows of its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from processes import run

from lanner.data.batch import Bags
from lanner.embedding import SGD, EmbeddingCollection, FeatureConfig, TableConfig
from lanner.embedding.dynamic import DynamicConfig
from lanner.errors import LannerError


def collection(max_rows=4, **options):
    tables = [TableConfig("s", 50, 3), TableConfig("d", "dynamic", 3, dynamic=DynamicConfig(max_rows=max_rows))]
    return EmbeddingCollection(tables, [FeatureConfig("s", "s"), FeatureConfig("d", "d")], SGD(1.0), **options)


def batch(*keys):
    ids = torch.tensor([*(abs(key) for key in keys), *keys])
    return Bags(("s", "d"), ids, None)


def rows(model):
    return {int(key): row for part in model.blocks("d") for key, row in zip(part.keys, part.weights, strict=True)}


def late_backward(model):
    """The rows that the keys 10.. have before and after the backward of a batch whose rows they took."""
    first, late = model(batch(1, 2)), model(batch(-3, -4))
    first.sum().backward()
    model(batch(10, 11, 12, 13))
    before = rows(model)
    with pytest.raises(LannerError, match=r"table 'd': key -[34] has lost its row since its batch was looked up"):
        late.sum().backward()
    return before, rows(model)


def test_a_late_backward_is_refused_where_its_rows_are_those_of_others():
    before, after = late_backward(collection())
    assert before.keys() == after.keys() == {10, 11, 12, 13}
    assert all(np.array_equal(before[key], after[key]) for key in before)


def test_a_late_backward_counts_where_its_rows_are_still_there():
    model, other = collection(max_rows=100), collection(max_rows=100)
    first, late = model(batch(1, 2)), model(batch(-3, -4))
    first.sum().backward()
    model(batch(10, 11, 12, 13))
    late.sum().backward()
    for keys in ((1, 2), (-3, -4)):
        other(batch(*keys)).sum().backward()
    expected = rows(other)
    assert all(np.array_equal(rows(model)[key], expected[key]) for key in (1, 2, -3, -4))


def test_late_gradients_may_wait_for_one_step():
    model = collection(max_rows=6)
    first, late = model(batch(1, 2)), model(batch(-3, -4))
    model.defer_updates = True
    first.sum().backward()
    model(batch(10, 11, 12, 13))
    late.sum().backward()
    model.apply_updates()
    assert {1, 2, -3, -4} <= rows(model).keys()


def refused(rank):
    """Whether this process holds rows of the late batch and refuses it."""
    model = collection()
    first, late = model(batch(1, 2)), model(batch(-3, -4))
    first.sum().backward()
    model(batch(*range(10, 30)))
    try:
        late.sum().backward()
    except LannerError as error:
        return str(error)
    return ""


def test_several_processes_refuse_it_too():
    assert any("has lost its row since its batch was looked up" in text for text in run(refused, 2))
