"""What rows are called, in Triton; see `names`."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lanner.kernels.gpu import on_device
from lanner.kernels.random.gpu import mix
from lanner.kernels.update import names as columns
from lanner.kernels.update.names import Names

_FIRST_ROW, _STREAM, _FIRST = (tl.constexpr(each) for each in (columns.FIRST_ROW, columns.STREAM, columns.FIRST))
_PACE, _COLUMN, _FIELDS = (tl.constexpr(each) for each in (columns.PACE, columns.COLUMN, columns.FIELDS))


class DeviceNames(NamedTuple):
    """Names on a device; `reach` is the largest power of two below the number of tables, or 0."""

    tables: Tensor
    keys: Tensor | None
    lines: int
    reach: int


def names_on(names: Names, weights: Tensor) -> DeviceNames | None:
    """`names` where `weights` lie; None where those are not rounded."""
    if weights.dtype is torch.float32:
        return None
    count = len(names.tables)
    return DeviceNames(on_device(names.tables, weights.device), names.keys, count, (1 << (count - 1).bit_length()) >> 1)


@triton.jit
def chances_of(names: tl.tensor, rows: tl.tensor, held: tl.tensor, seed: tl.tensor) -> tl.tensor:
    """For rows [n] held a random uint64, and the first column, int64: what `formats.gpu.store_rows` takes."""
    table = tl.zeros_like(rows)
    reach = tl.full([], 0, tl.int32) + names.reach  # an argument that is 1 is no number that may change
    while reach > 0:
        probe = table + reach
        first = tl.load(names.tables + probe * _FIELDS + _FIRST_ROW, mask=held & (probe < names.lines), other=0)
        table = tl.where((probe < names.lines) & (first <= rows), probe, table)
        reach //= 2
    line = names.tables + table * _FIELDS
    if names.keys is None:
        keys = rows - tl.load(line + _FIRST_ROW, mask=held, other=0)
    else:
        keys = tl.load(names.keys + rows, mask=held, other=0)
    keys = keys * tl.load(line + _PACE, mask=held, other=0) + tl.load(line + _FIRST, mask=held, other=0)
    stream = tl.load(line + _STREAM, mask=held, other=0).to(tl.uint64) + seed.to(tl.uint64)
    return mix(stream, keys.to(tl.uint64)), tl.load(line + _COLUMN, mask=held, other=0)
