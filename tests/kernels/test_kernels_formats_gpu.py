"""Rows of 16 and 8 bits in Triton equal the plain form, bit by bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_kernels_formats import floats, words

from lanner.kernels.formats import reference

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
from lanner.kernels.formats.gpu import load_rows, store_rows  # noqa: E402
from lanner.kernels.random.gpu import mix  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit(do_not_specialize=["seed", "count"])
def store_all(vectors, out, count, seed: tl.uint64, dim: tl.constexpr, lanes: tl.constexpr):
    rows = tl.program_id(0) * 4 + tl.arange(0, 4)
    chances = mix(seed.to(tl.uint64), rows.to(tl.uint64)), tl.zeros_like(rows)
    store_rows(out, rows, rows < count, load_rows(vectors, None, rows, rows < count, dim, lanes), chances, dim, lanes)


@triton.jit(do_not_specialize=["count"])
def load_all(weights, scales, out, count, dim: tl.constexpr, lanes: tl.constexpr):
    rows = tl.program_id(0) * 4 + tl.arange(0, 4)
    vectors = load_rows(weights, scales, rows, rows < count, dim, lanes)
    store_rows(out, rows, rows < count, vectors, None, dim, lanes)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@given(numbers=st.lists(floats(), min_size=3, max_size=24), seed=st.sampled_from([0, 1, 2**32 - 1, 2**63, 2**64 - 1]))
@settings(max_examples=40, deadline=None)
def test_rounds_as_the_reference_does(dtype, numbers, seed):
    vectors = torch.tensor(numbers[: len(numbers) // 3 * 3]).view(-1, 3)
    out = torch.full((len(vectors) + 1, 3), 7.0, dtype=dtype, device=DEVICE)
    store_all[(triton.cdiv(len(vectors), 4),)](vectors.to(DEVICE), out, len(vectors), seed, 3, 4)
    wanted = reference.rounded(vectors, dtype, words(len(vectors), seed))
    torch.testing.assert_close(out[:-1].cpu(), wanted, rtol=0, atol=0, equal_nan=True)
    assert (out[-1] == 7).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.uint8])
def test_reads_every_format(dtype):
    random = torch.Generator().manual_seed(0)
    weights = (torch.rand(6, 5, generator=random) * 200).to(dtype)
    scales = torch.rand(6, 2, generator=random) if dtype is torch.uint8 else None
    out = torch.zeros(6, 5, device=DEVICE)
    load_all[(2,)](weights.to(DEVICE), None if scales is None else scales.to(DEVICE), out, 6, 5, 8)
    torch.testing.assert_close(out.cpu(), reference.widened(weights, scales, torch.arange(6)))
