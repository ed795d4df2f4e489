"""Dot interaction in plain PyTorch: any device and dtype, and the form that goes into exported graphs."""

from __future__ import annotations

import torch
from torch import Tensor


def triangle(vectors: int) -> Tensor:
    """Positions of the strictly lower triangle in a flattened [vectors, vectors] matrix, row by row (int64)."""
    rows, columns = torch.tril_indices(vectors, vectors, offset=-1)
    positions: Tensor = rows * vectors + columns
    return positions


def dot_interaction(bottom: Tensor | None, embedded: Tensor, dim: int, positions: Tensor | None = None) -> Tensor:
    """See `lanner.kernels.interaction`; `positions` is `triangle(n)`, kept by callers that need it static."""
    vectors = embedded.view(embedded.shape[0], embedded.shape[1] // dim, dim)
    if bottom is not None:
        vectors = torch.cat([bottom.unsqueeze(1), vectors], dim=1)
    gram = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
    if positions is None:
        positions = triangle(vectors.shape[1]).to(gram.device)
    pairs = gram.index_select(1, positions)
    return pairs if bottom is None else torch.cat([bottom, pairs], dim=1)
