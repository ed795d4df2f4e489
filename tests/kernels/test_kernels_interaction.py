"""The fused dot interaction against the plain PyTorch form."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lanner.kernels.interaction import dot_interaction, output_width, reference


def inputs(batch: int, features: int, dim: int, bottom: bool, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(batch + 31 * features + 1009 * dim)
    tensors = [torch.randn(batch, dim)] if bottom else []
    return [t.to(dtype).requires_grad_() for t in (*tensors, torch.randn(batch, features * dim))]


def split(tensors: list[Tensor]) -> tuple[Tensor | None, Tensor]:
    return (tensors[0] if len(tensors) == 2 else None), tensors[-1]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 70), st.integers(1, 30), st.integers(1, 70), st.booleans())
def test_result_and_gradients_equal_the_reference_in_float64(batch: int, features: int, dim: int, bottom: bool) -> None:
    ours = inputs(batch, features, dim, bottom)
    exact = [tensor.detach().double().requires_grad_() for tensor in ours]
    result, expected = dot_interaction(*split(ours), dim), reference.dot_interaction(*split(exact), dim)
    assert result.shape == (batch, output_width(features, dim, bottom))
    torch.testing.assert_close(result.double(), expected, rtol=1e-4, atol=1e-4)
    if not expected.requires_grad or not expected.numel():
        return
    gradient = torch.randn_like(expected)
    found = torch.autograd.grad(result, ours, gradient.float())
    for mine, theirs in zip(found, torch.autograd.grad(expected, exact, gradient), strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=2e-4)


def test_pairs_stand_row_by_row_below_the_diagonal() -> None:
    bottom, embedded = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 5.0, 7.0, 11.0]])
    expected = [1.0, 2.0, 13.0, 29.0, 76.0]  # bottom, e1·b, e2·b, e2·e1
    assert dot_interaction(bottom, embedded, 2).tolist() == [expected]
    assert dot_interaction(None, embedded, 2).tolist() == [[76.0]]


def test_gradients_agree_with_finite_differences_of_the_reference() -> None:
    bottom, embedded = inputs(2, 3, 2, True, torch.float64)
    assert torch.autograd.gradcheck(lambda b, e: dot_interaction(b, e, 2), (bottom, embedded))


def test_layouts_that_are_not_contiguous_are_read_right() -> None:
    bottom, embedded = torch.randn(8, 5).t(), torch.randn(24, 5).t()
    expected = reference.dot_interaction(bottom, embedded.contiguous(), 8)
    torch.testing.assert_close(dot_interaction(bottom, embedded, 8), expected)


def test_half_precision_and_the_plain_form_agree() -> None:
    bottom, embedded = inputs(4, 3, 8, True, torch.bfloat16)
    result = dot_interaction(bottom, embedded, 8)
    assert result.dtype == torch.bfloat16
    expected = dot_interaction(bottom.float(), embedded.float(), 8)
    torch.testing.assert_close(result.float(), expected, rtol=0.05, atol=0.1)


def test_widths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"embedded has shape \(2, 7\)"):
        dot_interaction(None, torch.zeros(2, 7), 2)
    with pytest.raises(ValueError, match=r"bottom has shape \(2, 3\)"):
        dot_interaction(torch.zeros(2, 3), torch.zeros(2, 8), 2)
