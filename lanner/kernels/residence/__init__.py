"""Which rows stay in a cache: who holds them now, and a clock that finds those least used.

`marks` is int32 [slots, 2], two numbers a slot: HOLDS, how many look-ups under way need it, and ROUNDS, how often the
clock's hand still passes it over. Each use gives a row one round more, up to MOST; each pass of the hand takes one. So
what is used again and again stays, and what came once leaves when the hand comes by (generalised clock: Smith 1978,
"Sequentiality and prefetching in database systems").
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from lanner.kernels.residence import cpu, reference
from lanner.kernels.residence.columns import HOLDS, MOST, ROUNDS

__all__ = ["HOLDS", "MOST", "ROUNDS", "hold", "sweep"]

Array = np.ndarray[Any, Any]
Backend = Literal["reference", "cpu"]


def hold(marks: Array, slots: Array, times: int, use: bool = False, backend: Backend = "cpu") -> None:
    """Add `times` (below 0: let go) to HOLDS of every one of `slots` int64 [n], repeated ones and -1 (none) included.

    With `use`, each is also a use of the row.
    """
    if backend == "reference":
        reference.hold(marks, slots, times, use)
    else:
        cpu.hold(marks.reshape(-1), slots, times, use)


def sweep(marks: Array, keys: Array, hand: int, wanted: int, backend: Backend = "cpu") -> tuple[Array, int]:
    """Up to `wanted` slots, int64, that may be emptied, and where the hand stands then.

    `keys` int64 [slots] are below 0 for slots that are empty. Fewer come only where no others are free of holds.
    """
    if backend == "reference":
        return reference.sweep(marks, keys, hand, wanted)
    slots = np.empty(max(min(wanted, len(keys)), 0), np.int64)
    count, hand = cpu.sweep(marks.reshape(-1), keys, hand, slots)
    return slots[:count], hand
