"""Counter-based random bits in plain NumPy: what `cpu` must equal."""

from __future__ import annotations

import numpy as np


def mix(stream: np.ndarray, counter: np.ndarray) -> np.ndarray:
    """64 random bits of each pair of uint64; see `cpu.mix`."""
    with np.errstate(over="ignore"):
        x = stream + (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed
