"""Interactions: how the bottom output and the embeddings of a sample meet before the top layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lanner.kernels.interaction import dot_interaction, output_width, reference
from lanner.layers.exporting import exporting


class DotInteraction(nn.Module):
    """The bottom output followed by the dot product of every pair of vectors (the strictly lower triangle).

    `features` embeddings of width `dim`; with `bottom`, the bottom output is one more vector. Output
    [B, out_features] with ``out_features = dim * bottom + n(n-1)/2`` for n vectors
    (Naumov et al. 2019, arXiv:1906.00091). Exported and traced graphs hold plain PyTorch operations with a constant
    index; set `plain` to take that form everywhere.
    """

    positions: Tensor

    def __init__(self, features: int, dim: int, bottom: bool = True) -> None:
        super().__init__()
        self.dim = dim
        self.plain = False
        self.out_features = output_width(features, dim, bottom)
        self.register_buffer("positions", reference.triangle(features + bottom), persistent=False)

    def forward(self, bottom: Tensor | None, embedded: Tensor) -> Tensor:
        """`bottom` [B, dim] or None, `embedded` [B, features * dim] → [B, out_features]."""
        if self.plain or exporting():
            return reference.dot_interaction(bottom, embedded, self.dim, self.positions)
        return dot_interaction(bottom, embedded, self.dim)


class CatInteraction(nn.Module):
    """The bottom output (where there is one) and all embeddings side by side: [B, bottom_width + features * dim]."""

    def __init__(self, features: int, dim: int, bottom_width: int = 0) -> None:
        super().__init__()
        self.out_features = bottom_width + features * dim

    def forward(self, bottom: Tensor | None, embedded: Tensor) -> Tensor:
        return embedded if bottom is None else torch.cat([bottom, embedded], dim=1)
