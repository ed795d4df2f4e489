"""Lookup, every backend against a plain NumPy loop over bags."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from kernel_assembly import packed_instructions, uses
from lookup_problems import ALL_BACKENDS, arrays_of, for_backend, problems, vectors_of

from lanner.kernels.formats import NO_SCALES
from lanner.kernels.lanes import lanes_for
from lanner.kernels.layout import MAX, MEAN, NONE, SUM
from lanner.kernels.lookup import bags_fit, cpu, lookup


def expected(weights, layout, values, offsets, factors, batch, size):
    """Outputs and winners by loops in float64; nan where no vector lies."""
    out, winners = np.full(size, np.nan), np.full(size, -1)
    for line in layout:
        first_row, pooling = line[1], line[3]
        for begin, end, columns in vectors_of(line, offsets, batch, weights.shape[1]):
            rows = weights[first_row + values[begin:end]].astype(np.float64)
            if factors is not None:
                rows = rows * factors[begin:end, None]
            if begin == end:
                out[columns] = 0
            elif pooling == MAX:
                out[columns], winners[columns] = rows.max(0), rows.argmax(0)
            else:
                out[columns] = rows.sum(0) / (end - begin if pooling == MEAN else 1)
    return out, winners


@pytest.mark.parametrize("backend", ALL_BACKENDS)
@given(problem=problems())
@settings(max_examples=60, deadline=None)
def test_equals_a_loop_over_bags(backend, problem):
    size = problem.pop("size")
    out, winners = for_backend(backend, torch.full((size,), torch.nan), torch.full((size,), 7, dtype=torch.int32))
    placed = dict(zip(problem, for_backend(backend, *problem.values()), strict=True))
    strays = lookup(**placed, out=out, winners=winners, backend=backend)
    wanted, won = expected(*arrays_of(problem), problem["batch"], size)
    assert not strays
    np.testing.assert_allclose(out.cpu().numpy(), wanted, atol=1e-5)
    for line in problem["layout"]:
        if line[3] == MAX:
            for _, _, columns in vectors_of(line, problem["offsets"], problem["batch"], problem["weights"].shape[1]):
                np.testing.assert_array_equal(winners.cpu().numpy()[columns], won[columns])


@pytest.mark.parametrize("backend", ALL_BACKENDS)
@pytest.mark.parametrize("offsets", [None, torch.arange(9)], ids=["one-hot", "ragged"])
@pytest.mark.parametrize("pooling", [SUM, MEAN, MAX, NONE])
def test_an_id_out_of_range_never_reads_another_table(backend, offsets, pooling):
    weights = torch.cat([torch.full((10, 4), 1.0), torch.full((10, 4), 2.0)])
    weights[0] = 0.5
    layout = np.array([(0, 0, 10, pooling, 0, 8), (1, 10, 10, pooling, 4, 8)], np.int64)
    values, out = torch.tensor([9, 10, -1, 2**40, 0, 1, 2, 3]), torch.zeros(4, 8)
    weights, values, offsets, out = for_backend(backend, weights, values, offsets, out)
    assert lookup(weights, layout, values, offsets, None, 4, out.view(-1), backend=backend)
    assert out[:, :4].tolist() == [[1.0] * 4, [0.5] * 4, [0.5] * 4, [0.5] * 4]
    assert (out[:, 4:] == 2.0).all()


@pytest.mark.parametrize("hotness", [1, 7])
def test_many_threads_give_what_one_gives(hotness, monkeypatch):
    random, batch, features, dim = np.random.default_rng(0), 3000, 5, 16
    weights = torch.from_numpy(random.standard_normal((features * 1000, dim)).astype(np.float32))
    layout = np.array([(f, f * 1000, 1000, SUM, f * dim, features * dim) for f in range(features)], np.int64)
    values = torch.from_numpy(random.integers(0, 1000, features * batch * hotness))
    offsets = None if hotness == 1 else torch.arange(0, features * batch * hotness + 1, hotness)
    outs = []
    for threads in ("1", "3"):
        monkeypatch.setenv("LANNER_THREADS", threads)
        outs.append(torch.empty(batch, features * dim))
        lookup(weights, layout, values, offsets, None, batch, outs[-1].view(-1))
    assert torch.equal(*outs)
    rows = weights[values.view(features, batch, hotness) + torch.arange(features)[:, None, None] * 1000]
    torch.testing.assert_close(outs[0], rows.sum(2).transpose(0, 1).reshape(batch, -1), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("offsets", "fit"),
    [([0, 2, 4, 6, 8], True), ([0, 2, 4, 6, 7], False), ([1, 2, 4, 6, 8], False), ([0, 5, 4, 6, 8], False),
     ([0, 4, 8, 8], False), ([], False)],
)  # fmt: skip
def test_bags_fit(offsets, fit):
    assert bags_fit(torch.arange(8), torch.tensor(offsets, dtype=torch.int64), None, 2) is fit


def test_bags_fit_one_hot_and_factors():
    assert bags_fit(torch.arange(8), None, torch.ones(8), 4)
    assert not bags_fit(torch.arange(8), None, torch.ones(7), 4)
    assert not bags_fit(torch.arange(8), None, None, 3)
    assert bags_fit(torch.arange(0), None, None, 0)


def test_rows_are_summed_in_vector_registers():
    weights, ids, offsets, none = (
        np.ones(4 * 64, np.float32),
        np.array([0, 1, 2]),
        np.array([0, 3]),
        np.empty(0, np.float32),
    )
    out = np.empty(64, np.float32)
    lanes = lanes_for(64)
    code = packed_instructions(
        cpu._sums, lanes, lanes, weights, NO_SCALES, 64, 0, ids, offsets, none, 0, 0, 1, 0, 4, False, out, 0, 64
    )
    assert (out == 3.0).all()
    assert uses(code, "addps") and uses(code, "prefetcht1")
