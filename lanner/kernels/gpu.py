"""What the Triton kernels share: how programs share out the ids of a batch, and layouts kept on the device.

Tiles are two-dimensional, [vectors, lanes], lanes being the columns of a row rounded up to a power of two. A kernel
is compiled once for each width, format and id type; nothing that changes from step to step (batch, rates) compiles
it anew. Only modules named `gpu` import this one, so that Lanner runs without Triton.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from lanner.kernels import layout as columns

MEAN, MAX, NONE = tl.constexpr(columns.MEAN), tl.constexpr(columns.MAX), tl.constexpr(columns.NONE)
_FEATURE, _FIRST_ROW, _ROWS = (tl.constexpr(column) for column in (columns.FEATURE, columns.FIRST_ROW, columns.ROWS))
_POOLING, _OUT, _STRIDE = (tl.constexpr(column) for column in (columns.POOLING, columns.OUT, columns.STRIDE))
_FIELDS = tl.constexpr(columns.FIELDS)

OPTIONS = {"enable_fp_fusion": True}
"""Of every launch; what Triton does unasked changes from release to release."""


def lanes_for(dim: int) -> int:
    """Columns of a tile that holds rows of `dim`."""
    return 1 << (dim - 1).bit_length()


def on_device(layout: np.ndarray[Any, Any], device: torch.device) -> torch.Tensor:
    """`layout` on `device`, flat; one that comes again and again is copied there once."""
    return _copied(np.ascontiguousarray(layout, np.int64).tobytes(), device)


@lru_cache(maxsize=64)
def _copied(layout: bytes, device: torch.device) -> torch.Tensor:
    return torch.frombuffer(bytearray(layout), dtype=torch.int64).to(device)


def most_ids(layout: np.ndarray[Any, Any], values: torch.Tensor, offsets: torch.Tensor | None, batch: int) -> int:
    """At least as many as there are ids in all lines of a layout; needs no word from the device."""
    if offsets is None:
        return len(layout) * batch
    return values.numel() * int(np.bincount(layout[:, columns.FEATURE]).max(initial=0))


def ids_grid(ids: int, lines: int, offsets: torch.Tensor | None, batch: int, size: int) -> tuple[int, int]:
    """The grid in which `ids_share` deals out `ids` (see `most_ids`), at most `size` to a program."""
    return (triton.cdiv(batch, size), lines) if offsets is None else (triton.cdiv(ids, size) + lines, 1)


@triton.jit
def ids_share(
    layout: tl.tensor, offsets: tl.tensor, lines: tl.tensor, batch: tl.tensor, room: tl.constexpr, size: tl.constexpr
) -> tl.tensor:
    """This program's ids: (line, begin, place, end, before), those from `place` to place + size - 1 before `end`.

    `begin` and `end` are the bounds of the line's ids, of which a program without a share gets none; `before` is the
    number of ids of the lines before. With offsets, lines take as many programs of the one row of programs as they
    need, line after line; `room` is a power of two not below `lines`.
    """
    program = tl.program_id(0).to(tl.int64)
    if offsets is None:
        line = tl.program_id(1).to(tl.int64)
        begin = tl.load(layout + line * _FIELDS + _FEATURE) * batch
        end = begin + batch
        place = begin + program * size
        before = line * batch
    else:
        every = tl.arange(0, room).to(tl.int64)
        held = every < lines
        first = tl.load(layout + every * _FIELDS + _FEATURE, mask=held, other=0) * batch
        begins = tl.load(offsets + first, mask=held, other=0)
        ends = tl.load(offsets + first + batch, mask=held, other=0)
        needed = (ends - begins + size - 1) // size
        line = tl.sum((tl.cumsum(needed) <= program).to(tl.int64))
        begin, end = tl.sum(tl.where(every == line, begins, 0)), tl.sum(tl.where(every == line, ends, 0))
        place = tl.minimum(begin + (program - tl.sum(tl.where(every < line, needed, 0))) * size, end)
        before = tl.sum(tl.where(every < line, ends - begins, 0))
        line = tl.minimum(line, lines - 1)
    return line, begin, place, end, before


@triton.jit
def fields_of(layout: tl.tensor, line: tl.tensor) -> tl.tensor:
    """(feature, first row, rows, pooling, out, stride) of one line."""
    fields = layout + line * _FIELDS
    return (
        tl.load(fields + _FEATURE),
        tl.load(fields + _FIRST_ROW),
        tl.load(fields + _ROWS),
        tl.load(fields + _POOLING),
        tl.load(fields + _OUT),
        tl.load(fields + _STRIDE),
    )


@triton.jit
def known_rows(
    values: tl.tensor, places: tl.tensor, held: tl.tensor, first_row: tl.tensor, rows: tl.tensor
) -> tl.tensor:
    """Rows of the joint table of the ids at `places`, int64, and which ids are out of range (those take row 0)."""
    ids = tl.load(values + places, mask=held, other=0).to(tl.int64)
    outside = (ids < 0) | (ids >= rows)
    return first_row + tl.where(outside, 0, ids), outside
