"""Dot interaction on the CPU: one pass over the samples, each kept in the first-level cache.

A sample's vectors are copied into a scratch padded to whole registers (so any width and count runs the same code),
then the products are computed in blocks of 4 x 2 vectors (forward) and 4 vectors x 2 registers (backward): 8 sums
stay in registers, so the loop is bound by the multipliers and not by loads.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
import torch
from torch import Tensor

from lanner.kernels import parallel
from lanner.kernels.interaction.registers import (
    WIDTH,
    block_dots,
    block_products,
    copy,
    pack_triangle,
    unpack_triangle,
)
from lanner.kernels.memory import empty_tensor

_ROWS = 4  # vectors in a block; the scratch has a multiple of it
_GRAIN = 32  # samples: about 50 microseconds at 27 vectors of 64


@nb.njit(nogil=True, cache=True, inline="always")
def _gather(bottom, embedded, sample, has_bottom, features, dim, x):  # type: ignore[no-untyped-def]
    """Copy the vectors of one sample into the rows of `x`."""
    stride = x.shape[1]
    if has_bottom:
        copy(bottom, sample * dim, x, 0, dim)
    if stride == dim:
        copy(embedded, sample * features * dim, x, has_bottom * dim, features * dim)
    else:
        for f in range(features):
            copy(embedded, (sample * features + f) * dim, x, (f + has_bottom) * stride, dim)


@nb.njit(nogil=True, cache=True, inline="always")
def _scatter(x, to_bottom, to_embedded, sample, has_bottom, features, dim):  # type: ignore[no-untyped-def]
    """Copy the rows of `x` to where the vectors of one sample lie: the inverse of `_gather`."""
    stride = x.shape[1]
    if has_bottom:
        copy(x, 0, to_bottom, sample * dim, dim)
    if stride == dim:
        copy(x, has_bottom * dim, to_embedded, sample * features * dim, features * dim)
    else:
        for f in range(features):
            copy(x, (f + has_bottom) * stride, to_embedded, (sample * features + f) * dim, dim)


@nb.njit(nogil=True, cache=True)
def _forward(begin, end, bottom, embedded, out, has_bottom, features, dim, padded, stride):  # type: ignore[no-untyped-def]
    vectors = features + has_bottom
    x = np.zeros((padded, stride), np.float32)
    gram = np.zeros((padded, padded), np.float32)
    width = out.shape[1]
    for sample in range(begin, end):
        _gather(bottom, embedded, sample, has_bottom, features, dim, x)
        for i in range(0, padded, 4):
            for j in range(0, i + 4, 2):
                block_dots(x, i * stride, j * stride, stride, gram, i * padded + j, padded)
        at = sample * width
        if has_bottom:
            copy(x, 0, out, at, dim)
            at += dim
        pack_triangle(gram, padded, vectors, out, at)


@nb.njit(nogil=True, cache=True)
def _backward(  # type: ignore[no-untyped-def]
    begin, end, bottom, embedded, gradient, to_bottom, to_embedded, has_bottom, features, dim, padded, stride
):
    vectors = features + has_bottom
    x = np.zeros((padded, stride), np.float32)
    result = np.zeros((padded, stride), np.float32)
    pairs = np.zeros((padded, padded), np.float32)
    width = gradient.shape[1]
    for sample in range(begin, end):
        _gather(bottom, embedded, sample, has_bottom, features, dim, x)
        unpack_triangle(gradient, sample * width + has_bottom * dim, vectors, pairs, padded)
        for i in range(0, padded, 4):
            for column in range(0, stride, 16):
                block_products(pairs, i * padded, padded, x, column, stride, vectors, result, i * stride + column)
        if has_bottom:
            for k in range(dim):
                result[0, k] += gradient[sample, k]
        _scatter(result, to_bottom, to_embedded, sample, has_bottom, features, dim)


def _padding(vectors: int, dim: int) -> tuple[int, int]:
    """Rows and columns of the scratch: whole blocks of vectors, whole pairs of registers."""
    return -(-vectors // _ROWS) * _ROWS, -(-dim // (2 * WIDTH)) * 2 * WIDTH


class DotInteraction(torch.autograd.Function):
    """The fused kernel as a differentiable function of (bottom or None, embedded, dim); float32 on the CPU."""

    @staticmethod
    def forward(ctx: Any, bottom: Tensor | None, embedded: Tensor, dim: int) -> Tensor:
        embedded = embedded.contiguous()
        bottom = None if bottom is None else bottom.contiguous()
        batch, features = embedded.shape[0], embedded.shape[1] // dim
        has_bottom = int(bottom is not None)
        vectors = features + has_bottom
        out = torch.empty(batch, has_bottom * dim + vectors * (vectors - 1) // 2)
        first = embedded if bottom is None else bottom
        arrays = [t.detach().numpy() for t in (first, embedded, out)]
        parallel.run(_forward, batch, *arrays, has_bottom, features, dim, *_padding(vectors, dim), grain=_GRAIN)
        ctx.save_for_backward(first, embedded)
        ctx.sizes = (has_bottom, features, dim)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:
        first, embedded = ctx.saved_tensors
        has_bottom, features, dim = ctx.sizes
        to_embedded = empty_tensor(tuple(embedded.shape))
        to_bottom = torch.empty_like(first) if has_bottom else to_embedded
        tensors = (first, embedded, gradient.contiguous(), to_bottom, to_embedded)
        arrays = [tensor.detach().numpy() for tensor in tensors]
        padding = _padding(features + has_bottom, dim)
        parallel.run(_backward, embedded.shape[0], *arrays, has_bottom, features, dim, *padding, grain=_GRAIN)
        return to_bottom if has_bottom else None, to_embedded, None
