"""Counter-based random bits in Triton; with the results of `cpu`."""

from __future__ import annotations

import triton
import triton.language as tl

_GAMMA, _MIX1, _MIX2 = (tl.constexpr(word) for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@triton.jit
def mix(stream: tl.tensor, counter: tl.tensor) -> tl.tensor:
    """64 random bits of each pair of uint64; see `cpu.mix`."""
    x = stream + (counter + 1) * _GAMMA
    x = (x ^ (x >> 30)) * _MIX1
    x = (x ^ (x >> 27)) * _MIX2
    return x ^ (x >> 31)
