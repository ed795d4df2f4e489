"""Holds and the clock in plain NumPy and Python: what the fast kernels must equal."""

from __future__ import annotations

import numpy as np

from lanner.kernels.residence.columns import HOLDS, MOST, ROUNDS


def hold(marks: np.ndarray, slots: np.ndarray, times: int, use: bool) -> None:
    """See `lanner.kernels.residence.hold`."""
    uses = np.bincount(slots[slots >= 0], minlength=len(marks)).astype(np.int32)
    marks[:, HOLDS] += times * uses
    if use:
        marks[:, ROUNDS] = np.minimum(marks[:, ROUNDS] + uses, MOST)


def sweep(marks: np.ndarray, keys: np.ndarray, hand: int, wanted: int) -> tuple[np.ndarray, int]:
    """See `lanner.kernels.residence.sweep`."""
    chosen: list[int] = []
    for _ in range((MOST + 2) * len(keys)):
        if len(chosen) >= wanted:
            break
        if keys[hand] >= 0 and not marks[hand, HOLDS] and hand not in chosen:
            if marks[hand, ROUNDS]:
                marks[hand, ROUNDS] -= 1
            else:
                chosen.append(hand)
        hand = (hand + 1) % len(keys)
    return np.array(chosen, np.int64), hand
