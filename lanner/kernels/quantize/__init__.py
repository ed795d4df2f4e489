"""Rows of 8 bits, for reading: each row keeps 256 even steps from its smallest to its largest number.

As in FBGEMM's row-wise 8-bit format and in Guan et al., "Post-Training 4-bit Quantization on Embedding Tables" (2019),
which finds that other ranges than that of the row itself gain nothing at 8 bits.
"""

from __future__ import annotations

from torch import Tensor

_STEPS = 255
_BLOCK = 1 << 20  # numbers worked on at once: temporaries that stay in the cache


def quantize(rows: Tensor, numbers: Tensor, scales: Tensor) -> int:
    """Write `rows` as `numbers` and `scales`, from which `lookup` reads them.

    rows      float32, float16 or bfloat16 [n, dim], finite
    numbers   uint8 [n, dim]
    scales    float32 [n, 2]: scale and offset; what is read is scale * number + offset

    All on one device. What is read differs from what was written by half a scale, which is 1/255 of the distance from
    the smallest to the largest number of the row, and by a rounding of float32; a row of equal numbers is exact.
    Returns the first row with a number that is not finite, of which nothing is to be used, or -1.

    Plain PyTorch on every device: it is done once in a table's life and bound by memory.
    """
    step = max(_BLOCK // max(rows.shape[1], 1), 1)
    for begin in range(0, len(rows), step):
        part = slice(begin, begin + step)
        bad = _quantize(rows[part].float(), numbers[part], scales[part])
        if bad >= 0:
            return begin + bad
    return -1


def _quantize(rows: Tensor, numbers: Tensor, scales: Tensor) -> int:
    low, high = rows.aminmax(dim=1, keepdim=True)
    if not bool((low.isfinite() & high.isfinite()).all()):  # both are NaN where a number is
        return int((~(low.isfinite() & high.isfinite())).nonzero()[0, 0])
    scale = high / _STEPS - low / _STEPS  # the difference itself may be more than float32 holds
    scales[:, :1], scales[:, 1:] = scale, low
    steps = (rows / scale - low / scale).nan_to_num_(0.0)
    numbers.copy_(steps.round_().clamp_(0, _STEPS))
    return -1
