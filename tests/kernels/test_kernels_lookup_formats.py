"""Lookup in rows of 16 and 8 bits, in long rows cut into parts, and far behind element 2^31."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from lookup_problems import ALL_BACKENDS, arrays_of, for_backend, problems, vectors_of
from test_kernels_lookup import expected

from lanner.errors import ConfigError
from lanner.kernels.layout import MAX, SUM
from lanner.kernels.lookup import lookup

FORMATS = [torch.float32, torch.float16, torch.bfloat16, torch.uint8]


def in_format(weights, dtype):
    """float32 weights in a format, their scales, and what they have become in float32."""
    if dtype is not torch.uint8:
        rows = weights.to(dtype)
        return rows, None, rows.float()
    offsets = weights.min(1, keepdim=True).values
    scales = (weights.max(1, keepdim=True).values - offsets) / 255 + 1e-6
    rows = ((weights - offsets) / scales).round().to(torch.uint8)
    return rows, torch.cat([scales, offsets], 1).contiguous(), rows * scales + offsets


def equals_a_loop(backend, dtype, problem):
    """Looks up in a format, and compares with loops over what its rows are."""
    size = problem.pop("size")
    rows, scales, problem["weights"] = in_format(problem["weights"], dtype)
    wanted, _ = expected(*arrays_of(problem), problem["batch"], size)
    out, winners = torch.full((size,), torch.nan), torch.full((size,), 7, dtype=torch.int32)
    out, winners, rows, scales = for_backend(backend, out, winners, rows, scales)
    placed = dict(zip(problem, for_backend(backend, *problem.values()), strict=True))
    lookup(**(placed | {"weights": rows}), out=out, winners=winners, backend=backend, scales=scales)
    out, winners = out.cpu(), winners.cpu()
    np.testing.assert_allclose(out.numpy(), wanted, atol=3e-5)
    won_rows_give_the_maxima(problem, out.numpy(), winners.numpy())


def won_rows_give_the_maxima(problem, out, winners):
    weights, layout, values, offsets, factors = arrays_of(problem)
    for line in layout:
        if line[3] == MAX:
            for begin, end, columns in vectors_of(line, offsets, problem["batch"], weights.shape[1]):
                if begin == end:
                    assert (winners[columns] == -1).all()
                    continue
                at = begin + winners[columns]
                won = weights[line[1] + values[at], np.arange(weights.shape[1])]
                np.testing.assert_allclose(won * (1 if factors is None else factors[at]), out[columns], atol=3e-5)


@pytest.mark.parametrize("backend", ALL_BACKENDS)
@pytest.mark.parametrize("dtype", FORMATS[1:])
@given(problem=problems(kinds=[(17, np.int64), (64, np.int64)]))
@settings(max_examples=40, deadline=None)
def test_rows_of_every_format_are_widened(backend, dtype, problem):
    equals_a_loop(backend, dtype, problem)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@given(problem=problems(kinds=[(131, np.int64)]))
@settings(max_examples=25, deadline=None)
def test_rows_of_a_long_odd_width_are_whole(dtype, problem):
    equals_a_loop("cpu", dtype, problem)


@pytest.mark.parametrize(("ids", "wanted", "place"), [([1, 2], torch.nan, 0), ([0, 1, 2], 3.0, 2), ([2, 1], 3.0, 0)])
def test_nothing_is_greater_than_nan(ids, wanted, place):
    weights, layout = torch.tensor([[1.0], [torch.nan], [3.0]]), np.array([(0, 0, 3, MAX, 0, 1)], np.int64)
    out, winners = torch.empty(1), torch.empty(1, dtype=torch.int32)
    lookup(weights, layout, torch.tensor(ids), torch.tensor([0, len(ids)]), None, 1, out, winners)
    torch.testing.assert_close(out, torch.tensor([wanted]), equal_nan=True)
    assert winners.tolist() == [place]


def untouched(rows, dim, dtype):
    """A zeroed table whose untouched rows cost no memory."""
    carrier = {4: np.float32, 2: np.int16, 1: np.uint8}[dtype.itemsize]
    return torch.from_numpy(np.zeros((rows, dim), carrier)).view(dtype)


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_row_number_times_the_width_may_pass_2_to_the_31(dtype):
    """The last row starts at element 2^31."""
    rows, dim = (1 << 26) + 1, 32
    weights, scales = untouched(rows, dim, dtype), None
    weights[-1], wanted = 2, 2.0
    if dtype is torch.uint8:
        scales = untouched(rows, 2, torch.float32)
        scales[-1], wanted = torch.tensor([1.0, 0.5]), 2.5
    layout, values = np.array([(0, 0, rows, SUM, 0, dim)], np.int64), torch.tensor([rows - 1, 5])
    for offsets in (None, torch.arange(3)):
        out = torch.full((2, dim), torch.nan)
        lookup(weights, layout, values, offsets, None, 2, out.view(-1), scales=scales)
        assert (out[0] == wanted).all() and (out[1] == 0).all()


def test_quantised_rows_without_scales_are_refused():
    layout, out = np.array([(0, 0, 4, SUM, 0, 2)], np.int64), torch.empty(2)
    with pytest.raises(ConfigError, match="uint8 rows need scales"):
        lookup(torch.zeros(4, 2, dtype=torch.uint8), layout, torch.tensor([1]), None, None, 1, out)
