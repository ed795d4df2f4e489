"""The protocol's data types and their NumPy counterparts."""

from __future__ import annotations

import numpy as np

from lanner.serve.failure import RequestError

NUMERIC: dict[str, np.dtype] = {
    "BOOL": np.dtype(np.bool_),
    **{f"UINT{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
}
"""Fixed-size types by protocol name; values travel little-endian. `BYTES` is the one other type read here."""


def numeric(name: str, datatype: str) -> np.dtype:
    """The NumPy type of `datatype`; RequestError naming the tensor when there is none."""
    try:
        return NUMERIC[datatype]
    except KeyError:
        known = ", ".join((*NUMERIC, "BYTES"))
        raise RequestError(f"input '{name}': unknown datatype '{datatype}', expected one of {known}") from None


def widen(name: str, datatype: str, values: np.ndarray, target: str) -> np.ndarray:
    """`values` as `target`; refused unless every value of `datatype` can be held without loss."""
    if datatype == target:
        return values
    fixed = {datatype, target}.isdisjoint(("BYTES", "BOOL"))
    if not fixed or not np.can_cast(NUMERIC[datatype], NUMERIC[target], "safe"):
        raise RequestError(f"input '{name}': datatype {datatype} given, expected {target} or one it holds without loss")
    return values.astype(NUMERIC[target])
