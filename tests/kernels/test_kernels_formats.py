"""Rows of 16 and 8 bits: widened exactly, rounded at random without bias, equal in the plain and the fast form."""

from __future__ import annotations

import numba as nb
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_assembly import packed_instructions, uses
from numba.core.errors import TypingError

from lanner.errors import ConfigError
from lanner.kernels.formats import array_of, reference, scales_of
from lanner.kernels.formats.cpu import fetch_row, load_row, store_row
from lanner.kernels.lanes import Lanes, lanes_for
from lanner.kernels.random.cpu import mix
from lanner.kernels.random.reference import mix as plain_mix
from lanner.kernels.simd import lanes_from, store, width

HALVES = [torch.float16, torch.bfloat16]
FORMATS = [torch.float32, *HALVES, torch.uint8]


@nb.njit(nogil=True)
def read(lanes, weights, scales, dim, out):
    for row in range(out.size // dim):
        for part in range(0, dim, width(lanes)):
            piece = lanes_from(lanes, part, dim)
            fetch_row(weights, scales, row + 1, dim, part, piece)
            store(out, row * dim + part, load_row(weights, scales, row, dim, part, piece), piece)


@nb.njit(nogil=True)
def write(lanes, weights, dim, vectors, seed):
    for row in range(weights.size // dim):
        for part in range(0, dim, width(lanes)):
            piece = lanes_from(lanes, part, dim)
            vector = load_row(vectors, vectors, row, dim, part, piece)
            store_row(weights, row, dim, part, vector, piece, (mix(seed, np.uint64(row)), 0))


def words(rows, seed):
    """A random word for each of so many rows."""
    return plain_mix(np.full(rows, seed, np.uint64), np.arange(rows, dtype=np.uint64))


def written(vectors, dtype, seed=0, lanes=None):
    """float32 vectors [n, dim] rounded to `dtype` by the kernels."""
    dim = vectors.shape[1]
    out = torch.full((vectors.numel() + 1,), 7.0).to(dtype)
    write(lanes or lanes_for(dim), array_of(out[:-1]), dim, vectors.reshape(-1).numpy(), np.uint64(seed))
    assert out[-1] == 7.0
    return out[:-1].view(vectors.shape)


def every_half(dtype):
    """All 65,536 numbers of a format."""
    return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_every_16_bit_number_is_read_exactly_and_written_as_it_is(dtype):
    table = every_half(dtype).view(-1, 64)
    out = torch.empty(table.numel())
    read(Lanes(64), array_of(table), scales_of(table, None), 64, out.numpy())
    assert torch.equal(out.view(torch.int32), table.float().view(-1).view(torch.int32))
    back = written(out.view(-1, 64), dtype)
    numbers = ~table.isnan()
    assert torch.equal(back.view(torch.int16)[numbers], table.view(torch.int16)[numbers])
    assert torch.equal(back.isnan(), table.isnan())


def floats():
    """float32 of all sizes, and many near the borders of the 16-bit formats."""
    edges = [1.0, 2.0**-14, 2.0**-24, 2.0**-26, 65504.0, 65536.0, 3.3895e38, 2.0**-126, 2.0**-133, 1e-45]
    near = st.builds(
        lambda edge, share: float(np.float32(edge * share)), st.sampled_from(edges), st.floats(-1.01, 1.01)
    )
    return st.one_of(near, st.floats(width=32))


@pytest.mark.parametrize("dtype", HALVES)
@given(
    numbers=st.lists(floats(), min_size=6, max_size=24), dim=st.sampled_from([1, 3, 6]), seed=st.integers(0, 2**64 - 1)
)
@settings(max_examples=100, deadline=None)
def test_both_forms_round_alike_to_a_neighbour(dtype, numbers, dim, seed):
    vectors = torch.tensor(numbers[: len(numbers) // dim * dim]).view(-1, dim)
    fast = written(vectors, dtype, seed)
    torch.testing.assert_close(
        fast, reference.rounded(vectors, dtype, words(len(vectors), seed)), rtol=0, atol=0, equal_nan=True
    )
    most, finite = torch.finfo(dtype).max, vectors.isfinite()
    assert torch.equal(fast[~finite].float(), vectors[~finite]) or vectors.isnan().any()
    assert torch.equal(fast.isnan(), vectors.isnan())
    inside, got = vectors[finite].clamp(-most, most).double(), fast[finite].double()
    nearest = inside.to(dtype)
    upper, lower = (torch.nextafter(nearest, torch.full_like(nearest, end)).double() for end in (torch.inf, -torch.inf))
    assert ((lower <= got) & (got <= upper)).all()
    assert (torch.sign(got) * torch.sign(inside) >= 0).all()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("value", [0.1234567, -0.77, 100.01, 3e-6, -1e-7, 2.5e-8, 1e-10])
def test_rounding_is_unbiased(dtype, value):
    vectors = torch.full((2000, 64), value)
    got = written(vectors, dtype, seed=3).double()
    assert len(got.unique()) == 2
    error = abs(float(got.mean()) - float(vectors[0, 0]))
    assert error < 5 * float(got.std()) / got.numel() ** 0.5


def test_random_bits_differ_between_rows_columns_and_seeds_and_are_even():
    bits = np.stack([reference.random_bits(words(300, seed), 64) for seed in (0, 1, 2**63)])
    assert len(np.unique(bits)) > bits.size - 5
    counts = [np.bincount((bits >> shift).ravel() & 15, minlength=16) for shift in range(0, 32, 4)]
    assert np.abs(np.array(counts) / (bits.size / 16) - 1).max() < 0.1
    for axis in range(3):
        bytes_ = (bits & 0xFF).astype(np.float64)
        moved = np.roll(bytes_, 1, axis)
        assert abs(np.corrcoef(bytes_.ravel(), moved.ravel())[0, 1]) < 0.02


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("lanes", [Lanes(10), Lanes(5), Lanes(4, 2), Lanes(7, 3), Lanes(1)])
def test_parts_give_what_one_vector_gives(dtype, lanes):
    random = np.random.default_rng(0)
    vectors = torch.from_numpy(random.standard_normal((7, 10), np.float32))
    scales = torch.from_numpy(random.random((7, 2), np.float32))
    table = torch.from_numpy(random.integers(0, 256, (7, 10), np.uint8))
    if dtype is not torch.uint8:
        table = written(vectors, dtype, seed=1, lanes=lanes)
        assert torch.equal(table, reference.rounded(vectors, dtype, words(7, 1)))
    out = torch.full((71,), 7.0)
    read(lanes, array_of(table), scales_of(table, scales), 10, out.numpy()[:-1])
    wanted = reference.widened(table, scales, torch.arange(7))
    torch.testing.assert_close(out[:-1].view(7, 10), wanted)
    assert out[-1] == 7.0


def test_quantised_rows_are_read_only():
    with pytest.raises(TypingError, match="read-only"):
        write(Lanes(4), np.zeros(4, np.uint8), 4, np.zeros(4, np.float32), np.uint64(0))


def test_rows_of_other_types_and_missing_scales_are_named():
    with pytest.raises(ConfigError, match=r"float64 are not known, only float32, float16, bfloat16, uint8"):
        array_of(torch.zeros(2, 2, dtype=torch.float64))
    with pytest.raises(ConfigError, match=r"float32 \(3, 2\), got none"):
        scales_of(torch.zeros(3, 4, dtype=torch.uint8), None)
    with pytest.raises(ConfigError, match=r"float32 \(3, 2\), got torch.float32 \(2, 2\)"):
        scales_of(torch.zeros(3, 4, dtype=torch.uint8), torch.zeros(2, 2))


def test_rounding_stays_in_vector_registers():
    weights, vectors = np.zeros(64, np.int16), np.ones(64, np.float32)
    code = packed_instructions(write, Lanes(64), weights, 64, vectors, np.uint64(0))
    assert (weights == 0x3F80).all()
    assert uses(code, "pmulld") and uses(code, "psrld")
