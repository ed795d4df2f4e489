"""What the numbers of a table's rows are: float32, float16, bfloat16, or uint8 with a scale and an offset a row.

Kernels compute in float32 whatever the rows are: `cpu.load_row` widens, `cpu.store_row` rounds. They tell formats
apart by the type of the array they get (`array_of`), since NumPy has no bfloat16 and Numba no float16 arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lanner.errors import ConfigError

Array = np.ndarray[Any, Any]

NO_SCALES = np.empty(0, np.float32)
"""What kernels take as scales of rows that are not quantised."""

_SEEN_AS = {
    torch.float32: np.float32,
    torch.float16: np.uint16,
    torch.bfloat16: np.int16,
    torch.uint8: np.uint8,
}


def array_of(weights: Tensor) -> Array:
    """The flat array in which kernels see contiguous rows; float16 as uint16, bfloat16 as int16."""
    if weights.dtype not in _SEEN_AS:
        known = ", ".join(str(kind).removeprefix("torch.") for kind in _SEEN_AS)
        raise ConfigError(f"rows of {weights.dtype} are not known, only {known}")
    bits = weights.view(torch.int16) if weights.dtype is torch.bfloat16 else weights
    return bits.numpy().view(_SEEN_AS[weights.dtype]).reshape(-1)


def scales_for(weights: Tensor, scales: Tensor | None) -> Tensor | None:
    """The scales that belong to `weights`: those given for uint8, else none. Raises ConfigError where they do not."""
    if weights.dtype is not torch.uint8:
        return None
    if scales is None or scales.dtype is not torch.float32 or scales.shape != (len(weights), 2):
        seen = "none" if scales is None else f"{scales.dtype} {tuple(scales.shape)}"
        raise ConfigError(f"uint8 rows need scales, float32 ({len(weights)}, 2), got {seen}")
    return scales


def scales_of(weights: Tensor, scales: Tensor | None) -> Array:
    """The flat scales and offsets that kernels take beside `weights`; see `scales_for`."""
    own = scales_for(weights, scales)
    return NO_SCALES if own is None else own.numpy().reshape(-1)
