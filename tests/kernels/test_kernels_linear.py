"""The fused linear layer against the plain PyTorch form."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.kernels.linear import cpu, linear, reference


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 40), st.integers(1, 50), st.integers(1, 50), st.booleans(), st.booleans())
def test_result_and_gradients_equal_the_reference(
    batch: int, inputs: int, outputs: int, relu: bool, leaf: bool
) -> None:
    torch.manual_seed(batch + 41 * inputs + 2003 * outputs)
    shapes = (batch, inputs), (outputs, inputs), (outputs,)
    ours = [torch.randn(shape, requires_grad=leaf or k > 0) for k, shape in enumerate(shapes)]
    exact = [tensor.detach().double().requires_grad_(tensor.requires_grad) for tensor in ours]
    result, expected = linear(*ours, relu), reference.linear(*exact, relu)
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-4)
    gradient = torch.randn_like(expected)
    result.backward(gradient.float())
    expected.backward(gradient)
    for mine, theirs in zip(ours, exact, strict=True):
        assert (mine.grad is None) == (theirs.grad is None)
        if theirs.grad is not None:
            torch.testing.assert_close(mine.grad.double(), theirs.grad, rtol=1e-4, atol=2e-4)


def test_gradients_have_the_layout_of_their_weights() -> None:
    weight = torch.randn(5, 3, requires_grad=True)
    linear(torch.randn(4, 3), weight, torch.randn(5, requires_grad=True), True).sum().backward()
    assert weight.grad.is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_take_the_plain_form(dtype: torch.dtype) -> None:
    x, weight, bias = torch.randn(4, 3, dtype=dtype), torch.randn(5, 3, dtype=dtype), torch.randn(5, dtype=dtype)
    assert not cpu.fits(x, weight)
    assert torch.equal(linear(x, weight, bias, True), reference.linear(x, weight, bias, True))


def test_autocast_takes_the_plain_form() -> None:
    x, weight, bias = torch.randn(4, 3), torch.randn(5, 3), torch.randn(5)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight, bias).dtype == torch.bfloat16


def test_views_and_slices_are_read_right() -> None:
    x, weight, bias = torch.randn(9, 20).t()[3:11, 2:7], torch.randn(5, 6).t(), torch.randn(6)
    torch.testing.assert_close(linear(x, weight, bias, True), reference.linear(x, weight, bias, True))
