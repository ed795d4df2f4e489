"""Holds and the clock in Numba. `marks` comes flat: HOLDS of slot s at 2s, ROUNDS at 2s + 1."""

from __future__ import annotations

import numba as nb
import numpy as np

from lanner.kernels.residence.columns import MOST
from lanner.kernels.simd import get, prefetch, put

_AHEAD = 16


@nb.njit(nogil=True, cache=True)
def hold(marks: np.ndarray, slots: np.ndarray, times: int, use: bool) -> None:
    """See `lanner.kernels.residence.hold`."""
    count = slots.shape[0]
    for i in range(count):
        if i + _AHEAD < count:
            prefetch(marks, 2 * get(slots, i + _AHEAD))
        slot = get(slots, i)
        if slot < 0:
            continue
        put(marks, 2 * slot, np.int32(get(marks, 2 * slot) + times))
        if use and get(marks, 2 * slot + 1) < MOST:
            put(marks, 2 * slot + 1, np.int32(get(marks, 2 * slot + 1) + 1))


@nb.njit(nogil=True, cache=True)
def sweep(marks: np.ndarray, keys: np.ndarray, hand: int, slots: np.ndarray) -> tuple[int, int]:
    """Fill `slots`; returns how many there are, and the hand."""
    count, passed, size = 0, 0, keys.shape[0]
    while count < slots.shape[0] and passed < (MOST + 2) * size:
        if keys[hand] >= 0 and marks[2 * hand] == 0:
            if marks[2 * hand + 1] > 0:
                marks[2 * hand + 1] -= 1
            elif marks[2 * hand + 1] == 0:
                marks[2 * hand + 1] = -1  # chosen: not to be chosen twice
                slots[count] = hand
                count += 1
        hand = hand + 1 if hand + 1 < size else 0
        passed += 1
    for i in range(count):
        marks[2 * slots[i] + 1] = 0
    return count, hand
