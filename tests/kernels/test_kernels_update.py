"""Update, every backend against dense NumPy optimizers that know nothing of grouping."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_assembly import packed_instructions, uses
from lookup_problems import BACKENDS, arrays_of, problems, vectors_of
from update_steps import STEPS, dense_step, states_for, steps

from lanner.kernels.lanes import lanes_for
from lanner.kernels.layout import MAX, MEAN, SUM
from lanner.kernels.lookup import lookup
from lanner.kernels.update import UNNAMED, Rule, Step, cpu, update
from lanner.kernels.update.rules import numbers_of


def dense_gradient(weights, layout, values, offsets, factors, batch, gradient):
    """The gradient of the whole joint table, float64, by loops; and which rows occurred."""
    dense, seen = np.zeros(weights.shape), np.zeros(len(weights), bool)
    for line in layout:
        first_row, pooling = line[1], line[3]
        for begin, end, columns in vectors_of(line, offsets, batch, weights.shape[1]):
            at = first_row + values[begin:end]
            scales = np.ones(end - begin) if factors is None else factors[begin:end].astype(np.float64)
            each = np.repeat(gradient[columns][None].astype(np.float64), end - begin, 0)
            if pooling == MEAN and end > begin:
                scales = scales / (end - begin)
            if pooling == MAX and end > begin:
                pooled = weights[at] if factors is None else weights[at] * factors[begin:end, None]
                each *= np.arange(end - begin)[:, None] == pooled.argmax(0)
            np.add.at(dense, at, each * scales[:, None])
            seen[at] = True
    return dense, seen


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rule", Rule)
@given(problem=problems(), data=st.data(), seed=st.integers(0, 100))
@settings(max_examples=25, deadline=None)
def test_equals_a_dense_computation(backend, rule, problem, data, seed):
    random, size, batch = np.random.default_rng(seed), problem.pop("size"), problem["batch"]
    gradient = random.standard_normal(size).astype(np.float32)
    states, step = states_for(rule, problem["weights"], random), data.draw(steps(rule))
    out, winners = torch.empty(size), torch.empty(size, dtype=torch.int32)
    lookup(**problem, out=out, winners=winners)
    arrays = arrays_of(problem)
    dense, seen = dense_gradient(*arrays, batch, gradient)
    weights, after = dense_step(
        step, arrays[0].astype(np.float64), [s.numpy().astype(np.float64) for s in states], dense, seen
    )
    update(torch.from_numpy(arrays[0]), states, torch.from_numpy(gradient), problem["layout"], problem["values"],
           problem["offsets"], problem["factors"], batch, winners, step, backend=backend)  # fmt: skip
    np.testing.assert_allclose(arrays[0], weights, atol=3e-6)
    for state, wanted in zip(states, after, strict=True):
        np.testing.assert_allclose(state.numpy(), wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dim", [2, 97, 131, 199])
@pytest.mark.parametrize("rule", Rule)
def test_every_width_of_every_format(dim, rule, dtype):
    """Primes above 128 are worked through in parts of which the last is shorter."""
    random = np.random.default_rng(dim)
    ids = torch.from_numpy(random.integers(0, 20, 200))
    layout = np.array([(0, 0, 20, SUM, 0, dim)], np.int64)
    start = torch.from_numpy(random.standard_normal((20, dim)).astype(np.float32)).to(dtype)
    gradient = torch.from_numpy(random.standard_normal((200, 2 * dim)).astype(np.float32))[:, ::2].reshape(-1)
    results = []
    for backend in BACKENDS:
        states = states_for(rule, start, np.random.default_rng(0))
        weights, step = start.clone(), STEPS[rule]._replace(clip=20.0, decay=0.01)
        update(weights, states, gradient, layout, ids, None, None, 200, None, step, 5, backend=backend)
        results.append([weights.float(), *states])
    if dtype is not torch.float32:  # sums in another order round to another neighbour once in a while
        different = (results[0][0] != results[1][0]).float().mean()
        assert different <= 0.02 or dim < 5
        results = [states for _, *states in results]
    for fast, plain in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-4)


def one_table(rows, dim, ids, gradient):
    """A problem of a single one-hot feature."""
    layout = np.array([(0, 0, rows, SUM, 0, dim)], np.int64)
    return torch.zeros(rows, dim), layout, torch.as_tensor(ids), torch.as_tensor(gradient).view(-1)


@pytest.mark.parametrize("rule", Rule)
@pytest.mark.parametrize("rows", [50, 1 << 22])
def test_threads_and_parts_give_what_one_thread_gives(rule, rows, monkeypatch):
    random, count, dim = np.random.default_rng(0), 30_000, 8
    ids = random.zipf(1.2, count).clip(max=rows) - 1
    results = []
    for threads in ("1", "4"):
        monkeypatch.setenv("LANNER_THREADS", threads)
        weights, layout, values, gradient = one_table(rows, dim, ids, np.ones((count, dim), np.float32))
        states = tuple(torch.zeros_like(s) for s in states_for(rule, weights, random))
        update(weights, states, gradient, layout, values, None, None, count, None, STEPS[rule])
        results.append((weights, *states))
    assert all(torch.equal(one, four) for one, four in zip(*results, strict=True))
    assert torch.equal((results[0][0] != 0).any(1).nonzero()[:, 0], torch.unique(torch.as_tensor(ids)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_ids_out_of_range_train_row_0_as_lookup_read_it(backend):
    weights, layout, values, gradient = one_table(10, 4, [3, 10, -1, 2**40], np.ones((4, 4), np.float32))
    update(weights, (), gradient, layout, values, None, None, 4, None, Step(Rule.SGD, 1.0), backend=backend)
    assert weights[:, 0].tolist() == [-3.0, 0, 0, -1.0, 0, 0, 0, 0, 0, 0]


def test_a_row_number_times_the_width_may_pass_2_to_the_31():
    """The last row starts at element 2^31; untouched rows of the map cost no memory."""
    rows, dim = (1 << 26) + 1, 32
    weights = torch.from_numpy(np.zeros((rows, dim), np.float32))
    layout = np.array([(0, 0, rows, SUM, 0, dim)], np.int64)
    values, out = torch.tensor([rows - 1, 5]), torch.empty(2, dim)
    weights[-1] = 2.5
    lookup(weights, layout, values, None, None, 2, out.view(-1))
    assert (out[0] == 2.5).all() and (out[1] == 0).all()
    update(weights, (), torch.ones(2 * dim), layout, values, None, None, 2, None, Step(Rule.SGD, 1.0))
    assert (weights[-1] == 1.5).all() and (weights[5] == -1.0).all() and (weights[0] == 0).all()


def test_rows_are_stepped_in_vector_registers():
    weights, state, gradient = np.ones(64, np.float32), np.zeros(64, np.float32), np.ones(64, np.float32)
    none, words = np.empty(0, np.float32), np.zeros(1, np.uint64)
    numbers = np.array(numbers_of(Step(Rule.ADAGRAD, 0.5)), np.float32)
    code = packed_instructions(
        cpu.apply, lanes_for(64), weights, 64, state, none, gradient, 0, words, 1, 63, int(Rule.ADAGRAD), numbers,
        np.uint64(0), UNNAMED.tables[0], np.empty(0, np.int64), np.empty(64, np.float32),
    )  # fmt: skip
    assert (weights == 0.5).all()
    assert all(uses(code, name) for name in ("addps", "sqrtps", "divps", "prefetcht1"))
