"""Steps made up for, against dense Adam in NumPy that takes each of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lookup_problems import ALL_BACKENDS, for_backend

from lanner.kernels.catch_up import Past, catch_up
from lanner.kernels.update import Names

WIDTHS = (1, 3, 17, 64, 130)


def past_of(since, count, random, beta1=0.9, beta2=0.999, eps=1e-8):
    """Steps since + 1 .. count, at random rates."""
    t = np.arange(since + 1, count + 1)
    rates = random.random(len(t)) / (1 - beta1**t)
    tensors = (torch.from_numpy(each.astype(np.float32)) for each in (rates, 1 / np.sqrt(1 - beta2**t)))
    return Past(since, *tensors, beta1, beta2, eps)


def table(dim, rows, taken, random):
    """Weights, moments and steps."""
    w, m = random.standard_normal((2, rows, dim)).astype(np.float32)
    v = (m * random.uniform(0.3, 3, m.shape)).astype(np.float32) ** 2
    return [torch.from_numpy(each) for each in (w, m, v, np.asarray(taken, np.int32))]


def dense(arrays, rows, past):
    """Step by step, in float64."""
    w, m, v, steps = (each.numpy().astype(np.float64) for each in arrays)
    for row in rows:
        for t in range(int(steps[row]) + 1 if steps[row] else past.last + 1, past.last + 1):
            at = t - past.since - 1
            m[row] *= past.beta1
            v[row] *= past.beta2
            w[row] -= float(past.rates[at]) * m[row] / (np.sqrt(v[row]) * float(past.corrections[at]) + past.eps)
            steps[row] = t
    return w, m, v, steps


def caught_up(backend, arrays, rows, past, **options):
    arrays = for_backend(backend, *arrays)
    rates, corrections, at = for_backend(backend, past.rates, past.corrections, torch.as_tensor(rows))
    catch_up(*arrays, at, past._replace(rates=rates, corrections=corrections), **options, backend=backend)
    return [each.cpu() for each in arrays]


@pytest.mark.parametrize("backend", ALL_BACKENDS)
@given(
    dim=st.sampled_from(WIDTHS),
    since=st.integers(0, 50),
    more=st.integers(0, 20),
    betas=st.sampled_from([(0.9, 0.999), (0.5, 0.9), (0.0, 0.9), (0.9, 0.99)]),
    eps=st.sampled_from([1e-8, 0.1]),
    seed=st.integers(0, 99),
)
@settings(max_examples=8, deadline=None)
def test_equals_dense_steps(backend, dim, since, more, betas, eps, seed):
    random = np.random.default_rng(seed)
    past = past_of(since, since + more, random, *betas, eps)
    taken = random.integers(max(since, 1), since + more + 2, 9) * (random.random(9) < 0.8)
    arrays = table(dim, 9, taken, random)
    rows = random.permutation(9)[: random.integers(0, 9)]
    found, wanted = caught_up(backend, arrays, rows, past), dense(arrays, rows, past)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_a_long_absence_ends_where_all_its_steps_lead(backend):
    if backend not in ALL_BACKENDS:
        pytest.skip("needs Triton")
    random = np.random.default_rng(0)
    past = past_of(10, 2000, random)
    assert 200 < past.longest < 250
    arrays = table(8, 3, [10, 1000, 1999], random)
    found, wanted = caught_up(backend, arrays, [0, 1, 2], past), dense(arrays, [0, 1, 2], past)
    np.testing.assert_allclose(found[0].numpy(), wanted[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[2].numpy(), wanted[2], rtol=1e-3)  # a power of beta2 in float32
    assert (found[1][:2] == 0).all() or found[1][:2].abs().max() < 1e-30
    assert found[3].tolist() == [2000] * 3


@pytest.mark.parametrize("backend", ALL_BACKENDS)
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_rows_of_16_bits_are_rounded_at_random(backend, kind):
    random = np.random.default_rng(1)
    past, (w, m, v, steps) = past_of(5, 25, random), table(64, 40, [5] * 40, random)
    halves = w.to(kind)
    wanted = dense((halves.float(), m, v, steps), range(40), past)[0]
    runs = [caught_up(backend, (halves, m, v, steps), np.arange(40), past, seed=seed)[0] for seed in range(8)]
    assert runs[0].dtype is kind and not torch.equal(runs[0], runs[1])
    assert torch.equal(runs[0], caught_up(backend, (halves, m, v, steps), np.arange(40), past, seed=0)[0])
    unit = 2.0 ** -(10 if kind is torch.float16 else 7)
    error = torch.stack(runs).float().numpy() - wanted
    assert (np.abs(error) <= unit * np.abs(wanted) + 1e-6).all() and abs((error / np.abs(wanted)).mean()) < unit / 20


@pytest.mark.parametrize("backend", ALL_BACKENDS)
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_rounding_goes_by_the_names_of_rows_not_by_their_places(backend, kind):
    random = np.random.default_rng(3)
    past, arrays = past_of(5, 25, random), table(17, 40, [5] * 40, random)
    arrays[0] = arrays[0].to(kind)
    names = Names(np.array([(0, 12345678901234567, 3, 2, 8)], np.int64))  # the second of two shares, columns 8..
    some = random.permutation(40)[:30]
    wanted = caught_up("reference", arrays, some, past, seed=7, names=names)[0]
    for order in (np.arange(40), random.permutation(40)):
        placed = [each[torch.from_numpy(order)] for each in arrays]
        (keys,) = for_backend(backend, torch.from_numpy(order))
        rows, found = np.argsort(order)[some], torch.empty_like(arrays[0])
        moved = caught_up(backend, placed, rows, past, seed=7, names=names._replace(keys=keys))[0]
        found[torch.from_numpy(order)] = moved
        assert (found == wanted).float().mean() > 0.99  # the kernels' steps differ in the last bit


def test_threads_do_not_matter(monkeypatch):
    random = np.random.default_rng(2)
    past, arrays = past_of(5, 25, random), table(16, 3000, random.integers(5, 26, 3000), random)
    rows, found = random.permutation(3000), []
    for threads in ("1", "4"):
        monkeypatch.setenv("LANNER_THREADS", threads)
        found.append(caught_up("cpu", arrays, rows, past))
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))
