"""Collections with the GPU kernels train as those with the plain ones do.

On the CUDA device where there is one, else on the CPU in Triton's interpreter.
"""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import torch

from lanner.data.batch import Bags
from lanner.embedding import (
    SGD,
    Adagrad,
    Adam,
    EmbeddingCollection,
    FeatureConfig,
    RowWiseAdagrad,
    TableConfig,
)
from lanner.embedding.arrangement import Jagged
from lanner.embedding.device import require_held
from lanner.errors import ConfigError, IdRangeError

pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TABLES = [TableConfig("a", 9, 6), TableConfig("b", 20, 6), TableConfig("c", 5, 3, optimizer=SGD(0.2))]
FEATURES = [
    FeatureConfig("sum_a", "a"),
    FeatureConfig("mean_b", "b", "mean"),
    FeatureConfig("max_b", "b", "max"),
    FeatureConfig("sum_c", "c"),
]
SEQUENCE = FeatureConfig("none_a", "a", "none")
OPTIMIZERS = (SGD(0.1), Adagrad(0.1), RowWiseAdagrad(0.1), Adam(0.01))


def pair(optimizer=RowWiseAdagrad(0.1), features=FEATURES, **options):
    """The same collection with the GPU kernels and with the plain ones."""
    return tuple(
        EmbeddingCollection(TABLES, features, optimizer, backend, seed=3, device=device, **options)
        for backend, device in (("gpu", DEVICE), ("reference", "cpu"))
    )


def bags_of(features, step, batch=5, weighted=True, one_hot=False):
    random = np.random.default_rng(step)
    rows = {table.name: table.rows for table in TABLES}
    lengths = np.ones((len(features), batch), np.int64) if one_hot else random.integers(0, 4, (len(features), batch))
    ids = [random.integers(0, rows[f.table], n) for f, n in zip(features, lengths.sum(1), strict=True)]
    values = torch.from_numpy(np.concatenate(ids))
    names, factors = tuple(f.name for f in features), torch.rand(len(values), generator=torch.Generator()) + 0.5
    if one_hot:
        return Bags(names, values, None, factors if weighted else None)
    return Bags.from_lengths(names, values, torch.from_numpy(lengths.reshape(-1)), factors if weighted else None)


def joined(output):
    """All vectors of an output of any form, one after another."""
    each = output.values() if isinstance(output, dict) else [output]
    return torch.cat([(vector.values if isinstance(vector, Jagged) else vector).reshape(-1) for vector in each])


def train(ours, plain, features=FEATURES, steps=3, **options):
    """Train both alike; outputs are compared."""
    for step in range(steps):
        bags = bags_of(features, step, **options)
        found, wanted = joined(ours(bags)), joined(plain(bags))
        assert found.device.type == DEVICE
        torch.testing.assert_close(found.cpu(), wanted, atol=1e-5, rtol=1e-5)
        gradient = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(step))
        found.backward(gradient.to(found.device))
        wanted.backward(gradient)


def assert_equal_tables(ours, plain):
    for table in TABLES:
        (found,), (wanted,) = ours.blocks(table.name), plain.blocks(table.name)
        np.testing.assert_allclose(found.weights, wanted.weights, atol=1e-5, err_msg=table.name)
        assert found.states.keys() == wanted.states.keys()
        for name, state in wanted.states.items():
            np.testing.assert_allclose(found.states[name], state, atol=1e-5, err_msg=f"{name} of {table.name}")


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: type(o).__name__)
def test_trains_as_the_reference_does(optimizer):
    ours, plain = pair(optimizer)
    train(ours, plain)
    assert_equal_tables(ours, plain)


@pytest.mark.parametrize(("output", "features"), [("each", [*FEATURES, SEQUENCE]), ("feature", FEATURES[:3])])
def test_every_form_of_the_output(output, features):
    tables = [table for table in TABLES if table.name in {feature.table for feature in features}]
    ours, plain = (
        EmbeddingCollection(tables, features, Adagrad(0.1), backend, output=output, device=device)
        for backend, device in (("gpu", DEVICE), ("reference", "cpu"))
    )
    train(ours, plain, features, steps=2)
    assert torch.equal(ours.weight("a").cpu().isnan(), plain.weight("a").isnan())
    torch.testing.assert_close(ours.weight("b").cpu(), plain.weight("b"), atol=1e-5, rtol=1e-5)


def test_one_hot_bags_need_no_offsets():
    ours, plain = pair()
    train(ours, plain, weighted=False, one_hot=True)
    assert_equal_tables(ours, plain)


def test_bags_may_be_on_the_device_or_prepared():
    ours, plain = pair()
    bags = bags_of(FEATURES, 0)
    wanted = plain(bags)
    for given in (bags.to(ours.device), ours.prepare(bags)):
        torch.testing.assert_close(ours(given).detach().cpu(), wanted.detach(), atol=1e-5, rtol=1e-5)


def test_deferred_updates_of_several_backward_passes():
    ours, plain = pair(Adam(0.01))
    ours.defer_updates = plain.defer_updates = True
    train(ours, plain, steps=2)
    for collection in (ours, plain):
        collection.apply_updates(gradient_scale=0.5)
    assert_equal_tables(ours, plain)


def test_first_values_are_those_of_the_cpu_to_the_bit():
    ours, plain = pair()
    for table in TABLES:
        assert torch.equal(ours.weight(table.name).cpu(), plain.weight(table.name))


def test_rows_go_in_and_out_by_blocks():
    ours, plain = pair(Adagrad(0.1))
    train(ours, plain)
    fresh, _ = pair(Adagrad(0.1))
    for table in TABLES:
        for rows in ours.blocks(table.name):
            fresh.place(table.name, rows)
    assert_equal_tables(fresh, plain)


def test_changes_are_tracked():
    ours, plain = pair(track_changes=True)
    train(ours, plain, steps=2)
    for table in TABLES:
        (found,), (wanted,) = ours.blocks(table.name, since=1), plain.blocks(table.name, since=1)
        assert np.array_equal(found.keys, wanted.keys)


def test_copies_and_pickles_stay_where_they_are():
    ours, plain = pair(Adagrad(0.1))
    train(ours, plain)
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    for other in (copy.deepcopy(ours), torch.load(file, weights_only=False)):
        assert other.device == ours.device and other.weight("a").device == ours.weight("a").device
        assert_equal_tables(other, plain)


def test_to_takes_the_tables_along():
    _, plain = pair()
    model = torch.nn.Sequential(EmbeddingCollection(TABLES, FEATURES, RowWiseAdagrad(0.1), seed=3))
    model.to(DEVICE)
    if DEVICE == "cuda":
        assert model[0].backend == "gpu"
    train(model[0], plain)
    assert_equal_tables(model[0], plain)
    model.to("cpu")
    assert model[0].weight("a").device.type == "cpu" and model[0].backend == "cpu"
    assert_equal_tables(model[0], plain)


def test_an_id_out_of_range_is_named_before_any_row_changes():
    ours, _ = pair()
    before = {table.name: ours.weight(table.name).clone() for table in TABLES}
    bags = bags_of(FEATURES, 0, one_hot=True)
    bags.values[7] = 20  # of feature mean_b, sample 2
    for given in (bags, bags.to(ours.device), ours.prepare(bags)):
        with pytest.raises(IdRangeError, match=r"table 'b': id 20 of feature 'mean_b' \(sample 2\)"):
            ours(given)
    assert all(torch.equal(ours.weight(name), rows) for name, rows in before.items()) and ours.steps == 0


def test_ids_out_of_range_are_counted_and_train_row_0():
    ours, plain = pair(out_of_range="unknown")
    bags = bags_of(FEATURES, 0)
    bags.values[[0, 1]] = torch.tensor([-1, 2**40])
    for collection in (ours, plain):
        collection.defer_updates = True
        for _ in range(2):  # their gradients are summed by row
            collection(bags).sum().backward()
        collection.apply_updates()
    assert ours.unknown_ids == plain.unknown_ids and sum(ours.unknown_ids.values()) == 4
    assert_equal_tables(ours, plain)


def test_what_stays_on_the_host_is_refused():
    device = torch.device("cuda", 0)
    with pytest.raises(ConfigError, match="table 'd': dynamic tables are held in host memory"):
        require_held(device, [*TABLES, TableConfig("d", "dynamic", 4)], on_disk=False, several=False)
    with pytest.raises(ConfigError, match="tables on disk"):
        require_held(device, TABLES, on_disk=True, several=False)
    with pytest.raises(ConfigError, match="several processes"):
        require_held(device, TABLES, on_disk=False, several=True)
    require_held(torch.device("cpu"), [TableConfig("d", "dynamic", 4)], on_disk=True, several=True)


@pytest.mark.parametrize("device", ["tpu", "meta", 3.5, f"cuda:{torch.cuda.device_count()}"])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(ConfigError, match="device is"):
        EmbeddingCollection(TABLES, FEATURES, device=device)


def test_dumps_of_the_device_are_those_of_the_host(tmp_path):
    ours, _ = pair(Adagrad(0.1))
    train(ours, pair(Adagrad(0.1))[1])
    ours.embedding_dump(tmp_path / "one")
    host = EmbeddingCollection(TABLES, FEATURES, Adagrad(0.1))
    host.embedding_load(tmp_path / "one")
    for table in TABLES:
        assert torch.equal(host.weight(table.name), ours.weight(table.name).cpu())
    host.embedding_dump(tmp_path / "two")
    fresh, _ = pair(Adagrad(0.1))
    fresh.embedding_load(tmp_path / "two")
    assert fresh.weight("a").device == ours.weight("a").device
    for table in TABLES:
        assert torch.equal(fresh.weight(table.name), ours.weight(table.name))
        assert all(torch.equal(state, ours.state(table.name)[name]) for name, state in fresh.state(table.name).items())
