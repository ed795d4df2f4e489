"""Rows of 8 bits: what is read is what was written, to half a step of the row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from lookup_problems import ALL_BACKENDS, for_backend

from lanner.kernels.layout import SUM
from lanner.kernels.lookup import lookup
from lanner.kernels.quantize import quantize


def quantized(rows):
    """Numbers and scales of rows without a bad one."""
    numbers, scales = torch.empty(rows.shape, dtype=torch.uint8), torch.empty(len(rows), 2)
    assert quantize(rows, numbers, scales) == -1
    return numbers, scales


def read(backend, numbers, scales):
    """All rows, looked up."""
    count, dim = numbers.shape
    layout = np.array([(0, 0, count, SUM, 0, dim)], np.int64)
    numbers, scales, ids, out = for_backend(backend, numbers, scales, torch.arange(count), torch.empty(count * dim))
    lookup(numbers, layout, ids, None, None, count, out, backend=backend, scales=scales)
    return out.view(count, dim).cpu()


SIZES = st.sampled_from([1.0, 1e-30, 1e30, 3e38])


@pytest.mark.parametrize("backend", ALL_BACKENDS)
@given(
    rows=arrays(np.float32, (5, 3), elements=st.floats(-1, 1, width=32)), size=SIZES, shift=st.floats(-1, 1, width=32)
)
@settings(max_examples=25, deadline=None)
def test_a_row_is_read_to_half_a_step(backend, rows, size, shift):
    rows = ((rows + np.float32(shift)) / 2 * np.float32(size)).astype(np.float32)
    found = read(backend, *quantized(torch.from_numpy(rows))).double().numpy()
    exact = rows.astype(np.float64)
    spread, most = exact.max(1) - exact.min(1), np.abs(exact).max(1)
    bound = spread / 255 * 0.5001 + most * 4 * 2.0**-24 + 1e-42
    assert (np.abs(found - exact) <= bound[:, None] * (1 + 255 * 2.0**-22)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_ends_of_a_row_and_rows_of_equal_numbers_are_exact(dtype):
    rows = torch.tensor([[0.5, -0.25, 0.125], [3.0, 3.0, 3.0], [0.0, 0.0, 0.0]]).to(dtype)
    numbers, scales = quantized(rows)
    assert numbers[0, 0] == 255 and numbers[0, 1] == 0
    torch.testing.assert_close(read("cpu", numbers, scales)[1:], rows[1:].float(), rtol=0, atol=0)
    torch.testing.assert_close(scales[:, 1], torch.tensor([-0.25, 3.0, 0.0]))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_the_first_row_that_is_not_finite_is_named(value):
    rows = torch.zeros(1 << 19, 4)
    rows[300_000, 2] = rows[400_000, 1] = value
    assert quantize(rows, torch.empty(rows.shape, dtype=torch.uint8), torch.empty(len(rows), 2)) == 300_000


def test_a_row_number_times_the_width_may_pass_2_to_the_31():
    """The last row starts at element 2^31; rows in front of it are never touched."""
    rows, dim = (1 << 26) + 1, 32
    numbers = torch.from_numpy(np.zeros((rows, dim), np.uint8))
    scales = torch.from_numpy(np.zeros((rows, 2), np.float32))
    given = torch.from_numpy(np.zeros((rows, dim), np.int16)).view(torch.float16)
    given[-1] = torch.linspace(0, 255, dim).round()
    part = slice(rows - 100, None)
    assert quantize(given[part], numbers[part], scales[part]) == -1
    layout, out = np.array([(0, 0, rows, SUM, 0, dim)], np.int64), torch.empty(2, dim)
    lookup(numbers, layout, torch.tensor([rows - 1, 5]), None, None, 2, out.view(-1), scales=scales)
    assert torch.equal(out[0], given[-1].float()) and (out[1] == 0).all()
