"""Rows of any format to float32 and back in plain PyTorch and NumPy: what `cpu` must equal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class _Format(NamedTuple):
    fraction: int  # bits of the fraction
    lowest: int  # exponent of the smallest normal number
    dither: tuple[int, int]  # random bits that round a normal number, and one below


_FORMATS = {torch.float16: _Format(10, -14, (13, 20)), torch.bfloat16: _Format(7, -126, (16, 16))}


def widened(weights: Tensor, scales: Tensor | None, rows: Tensor) -> Tensor:
    """Rows of `weights` as float32; uint8 ones are scale * number + offset."""
    chosen = weights[rows].float()
    if weights.dtype is not torch.uint8:
        return chosen
    assert scales is not None
    scale, offset = scales[rows].unsqueeze(1).unbind(2)
    return chosen * scale + offset


def rounded(vectors: Tensor, dtype: torch.dtype, words: np.ndarray, columns: np.ndarray | int = 0) -> Tensor:
    """float32 `vectors` [n, dim] as `dtype`; to 16 bits by the random bits of `words` and `columns`.

    A number between two that the format knows becomes the upper one where its distance from the lower one and a
    random number, both as shares of the distance of the two, make at least 1.
    """
    if dtype is torch.float32:
        return vectors
    form, sizes = _FORMATS[dtype], vectors.abs().double().numpy()
    finite = np.isfinite(sizes)
    exponents = np.frexp(np.where(finite, sizes, 0.0))[1] - 1
    normal = exponents >= form.lowest
    unit = np.ldexp(1.0, np.maximum(exponents, form.lowest) - form.fraction)
    steps = np.where(finite, sizes, 0.0) / unit
    depth = np.where(normal, *form.dither).astype(np.uint32)
    bits = random_bits(words, vectors.shape[1], columns)
    if form.dither[0] != form.dither[1]:
        bits = np.where(normal, bits, bits >> (np.uint32(32) - depth))
    chance = (bits & ((np.uint32(1) << depth) - np.uint32(1))).astype(np.float64)
    distance = np.floor((steps - np.floor(steps)) * np.exp2(depth))
    values = (np.floor(steps) + (distance + chance >= np.exp2(depth))) * unit
    values = np.where(finite, np.minimum(values, torch.finfo(dtype).max), sizes)
    return torch.from_numpy(np.copysign(values, vectors.numpy())).to(dtype)


def random_bits(words: np.ndarray, dim: int, columns: np.ndarray | int = 0) -> np.ndarray:
    """uint32 [n, dim] from uint64 `words` [n] of rows, whose columns begin at `columns`; see `cpu` for the mix."""
    with np.errstate(over="ignore"):
        key = words[:, None]
        column = (np.reshape(columns, (-1, 1)) + np.arange(dim)).astype(np.uint32)
        x = column * np.uint32(0x9E3779B9) ^ key.astype(np.uint32)
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
        x = (x ^ (x >> np.uint32(15))) + (key >> np.uint64(32)).astype(np.uint32)
        x = x * np.uint32(0x846CA68B)
    bits: np.ndarray = x ^ (x >> np.uint32(16))
    return bits
