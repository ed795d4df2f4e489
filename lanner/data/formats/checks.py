"""What every block is compared with before anything is made of it: its schema."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanner.data.formats.base import Array, Block
from lanner.errors import DataError, IdRangeError
from lanner.schema import Label, Schema, Sparse


def check(block: Block, schema: Schema) -> None:
    """Raise DataError or IdRangeError naming file, row, column and value where `block` breaks the schema."""
    for at, label in enumerate(schema.labels):
        _check_label(block, label, block.labels[:, at])
    if block.dense.dtype.kind == "f" and not np.isfinite(block.dense).all():
        row, at = (int(place) for place in np.argwhere(~np.isfinite(block.dense))[0])
        where = block.where(row, schema.dense[at].name)
        raise DataError(f"{where}: {block.dense[row, at]} is not a finite number")
    for feature, ids in zip(schema.sparse, block.ids, strict=True):
        rows = schema.table(feature.table_name).rows
        if rows != "dynamic":
            _check_range(block, feature, ids.values, ids.offsets, rows)
        if ids.offsets is not None and feature.hotness is not None:
            _check_hotness(block, feature, ids.offsets)


def _check_label(block: Block, label: Label, values: Array) -> None:
    bad = np.zeros(len(values), np.bool_)
    if values.dtype.kind == "f":
        bad |= ~np.isfinite(values)
    if label.task == "binary":
        bad |= ~((values >= 0) & (values <= 1)) if label.soft else (values != 0) & (values != 1)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        wanted = "0 or 1" if label.task == "binary" and not label.soft else "a number in [0, 1]"
        wanted = wanted if label.task == "binary" else "a finite number"
        raise DataError(f"{block.where(row, label.name)}: label {values[row]}, expected {wanted}")


def _check_range(block: Block, feature: Sparse, values: Array, offsets: Array | None, rows: int | None) -> None:
    if not len(values) or (int(values.min()) >= 0 and (rows is None or int(values.max()) < rows)):
        return
    bad = values < 0
    if rows is not None:
        bad |= values >= rows
    at = int(np.flatnonzero(bad)[0])
    row = at if offsets is None else int(np.searchsorted(offsets, at, side="right")) - 1
    held = "0 and above" if rows is None else f"0..{rows - 1}"
    raise IdRangeError(
        f"{block.where(row, feature.name)}: id {values[at]} lies outside table {feature.table_name!r} ({held})"
    )


def _check_hotness(block: Block, feature: Sparse, offsets: Array) -> None:
    lengths = np.diff(offsets)
    wrong = np.flatnonzero(lengths != feature.hotness)
    if len(wrong):
        where = block.where(int(wrong[0]), feature.name)
        raise DataError(f"{where}: {lengths[wrong[0]]} ids; the schema says hotness {feature.hotness}")


def exactly(values: Array, kind: Any, block: Block, column: str) -> Array:
    """`values` [rows] or flat, of one column, as `kind`; raises DataError naming the first that would change."""
    kind = np.dtype(kind)
    if values.dtype == kind:
        return values
    with np.errstate(invalid="ignore", over="ignore"):
        cast = values.astype(kind)
        same = cast.astype(values.dtype) == values
        if values.dtype.kind in "iu" and kind.kind in "iu":
            same &= (cast < 0) == (values < 0)
    if not same.all():
        row = int(np.flatnonzero(~same)[0])
        raise DataError(f"{block.where(row, column)}: {values[row]} cannot be kept as {kind}")
    return cast
