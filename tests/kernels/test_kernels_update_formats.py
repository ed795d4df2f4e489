"""Steps of 16-bit rows: rounded at random to a neighbour of what float32 gives, alike everywhere, without bias."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lookup_problems import ALL_BACKENDS, BACKENDS, for_backend, problems
from update_steps import states_for, steps

from lanner.kernels.layout import SUM
from lanner.kernels.lookup import lookup
from lanner.kernels.update import UNNAMED, Names, Rule, Step, update

WIDTHS = [(4, np.int64), (17, np.int32)]  # few: each is compiled for each format
HALVES = [torch.float16, torch.bfloat16]
pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")  # in lanes not taken
halves = pytest.mark.parametrize("dtype", HALVES)


@st.composite
def names(draw, layout, rows):
    """The tables of a layout, or some of them as one, and keys or none."""
    starts = sorted({0, *draw(st.lists(st.sampled_from(sorted(set(layout[:, 1].tolist())))))})
    word = st.integers(-(2**63), 2**63 - 1)
    part = st.tuples(word, st.integers(0, 5), st.integers(1, 5), st.integers(0, 99))
    tables = [(start, *draw(part)) for start in starts]
    keys = draw(st.none() | st.lists(word, min_size=rows, max_size=rows))
    return Names(np.array(tables, np.int64), None if keys is None else torch.tensor(keys))


def stepped(backend, dtype, problem, states, gradient, winners, step, seed, called):
    """Weights and states after an update of copies in which the weights are of `dtype`."""
    weights, layout, *rest = problem.values()
    weights, *states = for_backend(backend, weights.to(dtype), *states)
    called = called._replace(keys=for_backend(backend, called.keys)[0])
    rest = for_backend(backend, gradient, layout, *rest, winners)
    update(weights, tuple(states), *rest, step, seed, called, backend=backend)
    return weights.cpu(), [state.cpu() for state in states]


@pytest.mark.parametrize("backend", ALL_BACKENDS[1:])
@halves
@pytest.mark.parametrize("rule", Rule)
@given(problem=problems(WIDTHS), data=st.data(), seed=st.integers(0, 2**64 - 1))
@settings(max_examples=6, deadline=None)
def test_equals_the_reference_and_rounds_what_float32_gives(backend, dtype, rule, problem, data, seed):
    random, size = np.random.default_rng(seed % 1000), problem.pop("size")
    problem["weights"] = problem["weights"].to(dtype).float()
    out, winners = torch.empty(size), torch.full((size,), -1, dtype=torch.int32)
    lookup(**problem, out=out, winners=winners)
    gradient = torch.from_numpy(random.standard_normal(size).astype(np.float32))
    states, step = states_for(rule, problem["weights"], random), data.draw(steps(rule))
    arguments = (
        problem,
        states,
        gradient,
        winners,
        step,
        seed,
        data.draw(names(problem["layout"], len(problem["weights"]))),
    )
    weights, after = stepped(backend, dtype, *arguments)
    plain, plain_after = stepped("reference", dtype, *arguments)
    exact, _ = stepped("reference", torch.float32, *arguments)
    for found, wanted in zip(after, plain_after, strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-5, atol=1e-5)
    unit = torch.finfo(dtype).eps * exact.abs().clamp(min=torch.finfo(dtype).smallest_normal)
    assert ((weights.float() - exact).abs() <= unit + 1e-5).all()
    # A float32 sum in another order rounds to another neighbour once in a while.
    assert (weights != plain).sum() <= 1 + weights.numel() // 100


def descended(backend, weights, ids, gradient, seed, called=UNNAMED, first=0):
    """Weights after one step of SGD on one table from row `first` on, one row an id."""
    rows, dim = weights.shape
    layout = np.array([(0, first, rows - first, SUM, 0, dim)], np.int64)
    weights, ids, gradient = for_backend(backend, weights, torch.as_tensor(ids), gradient.reshape(-1))
    called = called._replace(keys=for_backend(backend, called.keys)[0])
    step = Step(Rule.SGD, 1.0)
    update(weights, (), gradient, layout, ids, None, None, len(ids), None, step, seed, called, backend=backend)
    return weights.cpu()


@pytest.mark.parametrize("backend", BACKENDS)
@halves
def test_steps_far_below_the_precision_add_up(backend, dtype):
    """A step is 1/50 of the distance of two numbers, so 400 of them are 8 distances, and no row stands still."""
    unit, weights = torch.finfo(dtype).eps, torch.full((960, 4), 1.5).to(dtype)
    for seed in range(400):
        weights = descended(backend, weights, range(960), torch.full((960, 4), unit / 50), seed)
    moved = (1.5 - weights.float()) / unit
    deviation = (400 * 0.02 * 0.98) ** 0.5  # of a number of 400 chances of 1/50 each
    assert abs(float(moved.mean()) - 8) < 5 * deviation / moved.numel() ** 0.5
    assert abs(float(moved.std()) - deviation) < 0.2


@halves
def test_the_mean_over_many_seeds_is_the_exact_step(dtype):
    start, gradient = torch.linspace(-3, 3, 40).view(10, 4).to(dtype), torch.linspace(-0.4, 0.3, 40).view(10, 4)
    found = torch.stack([descended("cpu", start, range(10), gradient, seed).double() for seed in range(3000)])
    exact, unit = start.double() - gradient.double(), torch.finfo(dtype).eps * 4
    assert ((found - exact).abs() < unit).all()
    assert ((found.mean(0) - exact).abs() < 5 * found.std(0) / 3000**0.5 + 1e-6).all()


@pytest.mark.parametrize("backend", ALL_BACKENDS)
@halves
def test_a_row_is_rounded_alike_wherever_it_lies(backend, dtype):
    """Here 7 rows of a whole, every third from row 2 on, columns 4 to 8, behind another table and in any order."""
    random = torch.Generator().manual_seed(0)
    start, gradient = torch.randn(23, 12, generator=random).to(dtype), torch.randn(23, 12, generator=random)
    whole = descended("reference", start, range(23), gradient, 9, Names(np.array([(0, 77, 0, 1, 0)])))
    rows, columns, order = torch.arange(2, 23, 3), slice(4, 8), torch.tensor([3, 0, 6, 2, 1, 5, 4])
    tables = np.array([(0, 5, 0, 1, 0), (10, 77, 2, 3, 4)])
    for keys, chosen in ((None, rows), (torch.cat([torch.zeros(10, dtype=torch.int64), order]), rows[order])):
        part = torch.cat([torch.ones(10, 4).to(dtype), start[chosen, columns]])
        found = descended(backend, part, range(7), gradient[chosen, columns], 9, Names(tables, keys), first=10)
        assert torch.equal(found[10:], whole[chosen, columns])


@halves
def test_threads_and_parts_round_alike(dtype, monkeypatch):
    random = np.random.default_rng(0)
    ids = random.zipf(1.2, 30_000).clip(max=5000) - 1
    gradient = torch.from_numpy(random.standard_normal((30_000, 4)).astype(np.float32))
    found = []
    for threads in ("1", "4"):
        monkeypatch.setenv("LANNER_THREADS", threads)
        found.append(descended("cpu", torch.ones(5000, 4).to(dtype), ids, gradient, 3))
    assert torch.equal(*found)


@pytest.mark.parametrize("backend", ALL_BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_a_gradient_that_is_no_number_spoils_its_row_alone(backend, dtype):
    gradient = torch.tensor([[torch.nan, 1, 1, 1], [torch.inf, -torch.inf, 1, 1], [1, 1, 1, 1], [1e38, -1e38, 1, 1]])
    found = descended(backend, torch.ones(5, 4).to(dtype), [0, 1, 2, 4], gradient, 0).float()
    assert found[0, 0].isnan() and (found[:3, 2:] == 0).all()
    assert found[1, :2].tolist() == [-torch.inf, torch.inf]
    assert (found[2] == 0).all() and (found[3] == 1).all()
    most = {torch.float16: 65504.0}.get(dtype, 1e38)  # beyond the largest number there is nothing to round to
    torch.testing.assert_close(found[4, :2], torch.tensor([-most, most]), rtol=0.01, atol=0)


@halves
def test_a_row_number_times_the_width_may_pass_2_to_the_31(dtype):
    """The last row starts at element 2^31; untouched rows cost no memory."""
    rows, dim = (1 << 26) + 1, 32
    weights = torch.from_numpy(np.zeros((rows, dim), np.int16)).view(dtype)
    weights[-1] = 2.5
    layout, ids = np.array([(0, 0, rows, SUM, 0, dim)], np.int64), torch.tensor([rows - 1, 5])
    update(weights, (), torch.ones(2 * dim), layout, ids, None, None, 2, None, Step(Rule.SGD, 1.0), 1)
    assert (weights[-1] == 1.5).all() and (weights[5] == -1).all() and (weights[0] == 0).all()
