"""Gather rows of columns that lie scattered in memory-mapped files into dense arrays, checking ids on the way.

A column is given by one memory address per segment (a record batch of a file), so one call serves any number of
files. Callers keep the memory behind the addresses alive and must have checked that every (segment, row) exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanner.kernels.gather import cpu

KINDS = {
    np.dtype(np.uint8): cpu.U8,
    np.dtype(np.uint16): cpu.U16,
    np.dtype(np.uint32): cpu.U32,
    np.dtype(np.int32): cpu.I32,
    np.dtype(np.int64): cpu.I64,
    np.dtype(np.float32): cpu.F32,
    np.dtype(np.float64): cpu.F64,
}
"""Element types that can be gathered, and the kernels' codes for them."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where B rows lie: `segment` and `row` within the segment, both int64 [B]."""

    segment: NDArray[np.int64]
    row: NDArray[np.int64]


def locate(rows: NDArray[np.int64], starts: NDArray[np.int64]) -> Places:
    """The places of row numbers `rows` when segment s holds rows starts[s]..starts[s+1]-1."""
    segment, row = np.empty(rows.size, np.int64), np.empty(rows.size, np.int64)
    cpu.locate(rows, starts, segment, row)
    return Places(segment, row)


def block(places: Places, addresses: NDArray[np.int64], out: NDArray[Any]) -> NDArray[Any]:
    """Gather rows of `out.shape[1]` neighbouring elements of the type of `out` [B, D] from addresses [S]."""
    width = out.shape[1] * out.itemsize
    cpu.copy_rows(places.segment, places.row, addresses, width, out.view(np.uint8).reshape(len(out), width))
    return out


def column(places: Places, addresses: NDArray[np.int64], kind: int, out: NDArray[Any]) -> NDArray[Any]:
    """Gather one column of element type `kind` from addresses [S] into `out` [B] of any type."""
    cpu.gather_column(places.segment, places.row, addresses, kind, out)
    return out


def ids(
    places: Places,
    addresses: NDArray[np.int64],
    kinds: NDArray[np.uint8],
    lasts: NDArray[np.uint64],
    out: NDArray[Any],
) -> tuple[int, int, int] | None:
    """Gather F id columns feature-major into `out` [F, B] (int32 or int64) from addresses [S, F].

    `lasts` holds each feature's largest legal id; ids are compared as unsigned numbers. Returns (feature, sample,
    id) of the first id above it, or None; nothing of `out` may be used when there is one.
    """
    bad, value = cpu.gather_ids(places.segment, places.row, addresses, kinds, lasts, out)
    return None if bad < 0 else (*divmod(int(bad), places.row.size), int(value))


def lengths(
    places: Places,
    ends: NDArray[np.int64],
    widths: NDArray[np.uint8],
    counts: NDArray[np.int64],
) -> NDArray[np.int64] | tuple[int, int]:
    """Offsets [F*B + 1] of the bags of F list columns, feature-major.

    `ends` [S, F] are the addresses of the columns' own offsets, `widths` [F] their bytes (4 or 8; 0 is a column of
    exactly one id a row) and `counts` [S, F] the ids that each list column has. Returns (feature, sample) instead
    when a list's own offsets fall or point past its ids.
    """
    offsets = np.zeros(widths.size * places.row.size + 1, np.int64)
    bad = cpu.bag_offsets(places.segment, places.row, ends, widths, counts, offsets)
    return offsets if bad < 0 else divmod(int(bad), places.row.size)


def bags(
    places: Places,
    addresses: NDArray[np.int64],
    kinds: NDArray[np.uint8],
    lasts: NDArray[np.uint64],
    ends: NDArray[np.int64],
    widths: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    out: NDArray[Any],
) -> tuple[int, int, int] | None:
    """Gather the ids of the bags that `lengths` measured into `out` [offsets[-1]]; checks ids like `ids`."""
    bad, value = cpu.gather_bags(places.segment, places.row, addresses, kinds, lasts, ends, widths, offsets, out)
    return None if bad < 0 else (*divmod(int(bad), places.row.size), int(value))
