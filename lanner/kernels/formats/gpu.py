"""Rows of any format to tiles of float32 and back, in Triton; with the random bits and the results of `cpu`."""

from __future__ import annotations

import triton
import triton.language as tl

_INFINITY = tl.constexpr(0x7F800000)  # of float32
_HALF_MOST, _HALF_INFINITY, _HALF_NAN = (tl.constexpr(bits) for bits in (0x7BFF, 0x7C00, 0x7E00))
_BRAIN_MOST, _BRAIN_INFINITY, _BRAIN_NAN = (tl.constexpr(bits) for bits in (0x7F7F, 0x7F80, 0x7FC0))
_SMALLEST = tl.constexpr(0x38800000)  # 2^-14, float16's smallest normal number
_BIAS = tl.constexpr((127 - 15) << 10)  # between the exponents of float32 and float16
_COLUMN, _LOW1, _LOW2 = (tl.constexpr(word) for word in (0x9E3779B9, 0x7FEB352D, 0x846CA68B))


@triton.jit
def load_rows(
    weights: tl.tensor, scales: tl.tensor, rows: tl.tensor, held: tl.tensor, dim: tl.constexpr, lanes: tl.constexpr
) -> tl.tensor:
    """Rows as float32 [n, lanes], 0 where not held and beyond dim; `scales` are those of uint8 rows, else None."""
    columns = tl.arange(0, lanes)
    mask = held[:, None] & (columns < dim)[None, :]
    vectors = tl.load(weights + rows[:, None] * dim + columns[None, :], mask=mask, other=0).to(tl.float32)
    if scales is not None:
        scale = tl.load(scales + 2 * rows, mask=held, other=0.0)
        offset = tl.load(scales + 2 * rows + 1, mask=held, other=0.0)
        vectors = vectors * scale[:, None] + offset[:, None]
    return vectors


@triton.jit
def store_rows(
    weights: tl.tensor,
    rows: tl.tensor,
    held: tl.tensor,
    vectors: tl.tensor,
    chances: tl.tensor,
    dim: tl.constexpr,
    lanes: tl.constexpr,
) -> None:
    """Write float32 [n, lanes] to the rows held.

    16-bit ones are rounded at random by `chances`: of each row a random uint64, and its first column, int64.
    """
    columns = tl.arange(0, lanes)
    kind: tl.constexpr = weights.dtype.element_ty
    if kind == tl.float16 or kind == tl.bfloat16:
        vectors = _rounded(vectors, _random_bits(chances, columns), kind)
    mask = held[:, None] & (columns < dim)[None, :]
    tl.store(weights + rows[:, None] * dim + columns[None, :], vectors, mask=mask)


@triton.jit
def _random_bits(chances: tl.tensor, columns: tl.tensor) -> tl.tensor:
    """32 random bits, uint32 [n, lanes], of these rows and columns; see `cpu` for the mixing function."""
    keys, firsts = chances
    x = (firsts[:, None] + columns[None, :]).to(tl.uint32) * _COLUMN ^ keys.to(tl.uint32)[:, None]
    x = (x ^ (x >> 16)) * _LOW1
    x = ((x ^ (x >> 15)) + (keys >> 32).to(tl.uint32)[:, None]) * _LOW2
    return x ^ (x >> 16)


@triton.jit
def _rounded(vectors: tl.tensor, bits: tl.tensor, kind: tl.constexpr) -> tl.tensor:
    """float32 as float16 or bfloat16, rounded by random bits."""
    word = vectors.to(tl.uint32, bitcast=True)
    size = word & 0x7FFFFFFF
    if kind == tl.float16:
        normal = ((size + (bits & 0x1FFF)) >> 13) - _BIAS
        small = tl.minimum(size, _SMALLEST).to(tl.float32, bitcast=True)
        tiny = ((small * 2.0**44).to(tl.uint32) + (bits >> 12)) >> 20
        finite = tl.minimum(tl.where(size < _SMALLEST, tiny, normal), _HALF_MOST)
        special = tl.where(size > _INFINITY, _HALF_NAN, _HALF_INFINITY)
    else:
        finite = tl.minimum((size + (bits & 0xFFFF)) >> 16, _BRAIN_MOST)
        special = tl.where(size > _INFINITY, _BRAIN_NAN, _BRAIN_INFINITY)
    pattern = tl.where(size < _INFINITY, finite, special.to(tl.uint32)) | ((word >> 16) & 0x8000)
    return pattern.to(tl.uint16).to(kind, bitcast=True)
