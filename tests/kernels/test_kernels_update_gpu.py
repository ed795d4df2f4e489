"""The Triton update against the plain one; tiles of 64 elements, so that small problems have long runs too."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lookup_problems import NARROW, for_backend, problems
from update_steps import states_for, steps

from lanner.kernels.layout import SUM
from lanner.kernels.lookup import lookup
from lanner.kernels.update import Rule, Step, update

gpu = pytest.importorskip("lanner.kernels.update.gpu")
pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")  # in lanes not taken


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(gpu, "_TILE", 64)


def updated(backend, weights, states, *rest):
    """Weights and states after an update of copies."""
    weights, *states = for_backend(backend, weights, *states)
    rest = for_backend(backend, *rest)
    update(weights, tuple(states), *rest, backend=backend)
    return [tensor.cpu() for tensor in (weights, *states)]


@pytest.mark.parametrize("rule", Rule)
@given(problem=problems(NARROW), data=st.data(), seed=st.integers(0, 100))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equals_the_reference(rule, problem, data, seed):
    random, size, weights = np.random.default_rng(seed), problem.pop("size"), problem.pop("weights")
    gradient = torch.from_numpy(random.standard_normal(size).astype(np.float32))
    out, winners = torch.empty(size), torch.full((size,), -1, dtype=torch.int32)
    lookup(weights, **problem, out=out, winners=winners)
    states, step = states_for(rule, weights, random), data.draw(steps(rule))
    arguments = weights, states, gradient, *problem.values(), winners, step
    for found, wanted in zip(updated("gpu", *arguments), updated("reference", *arguments), strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-5, atol=1e-5)


def test_runs_over_many_tiles_are_summed_once():
    ids = torch.tensor([7] * 300 + [3] + [9] * 200 + list(range(10)) * 3)
    layout, gradient = np.array([(0, 0, 10, SUM, 0, 4)], np.int64), torch.ones(4 * len(ids))
    sgd = Step(Rule.SGD, -1.0)
    (sums,) = updated("gpu", torch.zeros(10, 4), (), gradient, layout, ids, None, None, len(ids), None, sgd)
    assert sums[:, 0].tolist() == torch.bincount(ids).tolist() and (sums == sums[:, :1]).all()


def test_the_same_batch_gives_the_same_bits():
    ids, gradient = torch.arange(200) % 3, torch.randn(200 * 4, generator=torch.Generator().manual_seed(0))
    layout, sgd = np.array([(0, 0, 3, SUM, 0, 4)], np.int64), Step(Rule.SGD, 0.1)
    first, second = (
        updated("gpu", torch.zeros(3, 4), (), gradient, layout, ids, None, None, 200, None, sgd)[0] for _ in range(2)
    )
    assert torch.equal(first, second)


def test_a_feature_may_stand_in_two_lines():
    layout = np.array([(0, 0, 5, SUM, 0, 2), (0, 5, 5, SUM, 8, 2)], np.int64)
    ids, offsets = torch.tensor([0, 4, 4, 1, 4]), torch.tensor([0, 2, 2, 3, 5])
    arguments = torch.zeros(10, 2), (), torch.arange(16.0), layout, ids, offsets, None, 4, None, Step(Rule.SGD, -1.0)
    assert torch.equal(*(updated(backend, *arguments)[0] for backend in ("gpu", "reference")))


def test_ids_out_of_range_train_row_0_as_lookup_read_it():
    layout, ids = np.array([(0, 0, 10, SUM, 0, 4)], np.int64), torch.tensor([3, 10, -1, 2**40])
    arguments = torch.zeros(10, 4), (), torch.ones(16), layout, ids, None, None, 4, None, Step(Rule.SGD, 1.0)
    assert updated("gpu", *arguments)[0][:, 0].tolist() == [-3.0, 0, 0, -1.0, 0, 0, 0, 0, 0, 0]


def test_an_empty_batch_changes_nothing():
    layout, none = np.array([(0, 0, 10, SUM, 0, 4)], np.int64), torch.zeros(0, dtype=torch.int64)
    arguments = torch.ones(10, 4), (), torch.ones(8), layout, none, torch.zeros(3, dtype=torch.int64), None, 2, None
    assert (updated("gpu", *arguments, Step(Rule.SGD, 1.0))[0] == 1).all()
