"""Dot interaction: the strictly lower triangle of the Gram matrix of n vectors a sample.

`x` is [B, n, d]: the bottom output (where there is one) followed by the F embeddings. The result is
``[bottom, x_1·x_0, x_2·x_0, x_2·x_1, x_3·x_0, ...]``, [B, d + n(n-1)/2] (Naumov et al. 2019, arXiv:1906.00091).
"""

from __future__ import annotations

import torch
from torch import Tensor

from lanner.kernels.interaction import cpu, reference

__all__ = ["dot_interaction", "output_width"]


def output_width(features: int, dim: int, bottom: bool) -> int:
    """Columns of the result for `features` embeddings of width `dim`, with or without a bottom output."""
    vectors = features + bottom
    return bottom * dim + vectors * (vectors - 1) // 2


def dot_interaction(bottom: Tensor | None, embedded: Tensor, dim: int) -> Tensor:
    """Interaction of `bottom` [B, dim] (None when the model has no dense features) and `embedded` [B, F*dim].

    Differentiable in both. float32 tensors on a CPU take the fused kernel, which never builds the concatenation or
    the full Gram matrix; everything else takes the plain PyTorch form. Raises ValueError where widths do not fit.
    """
    if embedded.dim() != 2 or embedded.shape[1] % dim:
        raise ValueError(f"embedded has shape {tuple(embedded.shape)}; expected [batch, features * {dim}]")
    if bottom is not None and bottom.shape != (embedded.shape[0], dim):
        raise ValueError(f"bottom has shape {tuple(bottom.shape)}; expected ({embedded.shape[0]}, {dim})")
    if embedded.device.type == "cpu" and embedded.dtype == torch.float32:
        bottom = bottom if bottom is None else bottom.float()
        result: Tensor = cpu.DotInteraction.apply(bottom, embedded, dim)  # type: ignore[no-untyped-call]
        return result
    return reference.dot_interaction(bottom, embedded, dim)
