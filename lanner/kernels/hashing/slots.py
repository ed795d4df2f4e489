"""Open addressing over flat arrays of 16-byte slots (key, value), in Numba, with growth in small steps.

`slots` is int64 [2 * capacity], capacity a power of two; slot s holds its key at 2s and its value at 2s + 1. Value 0
is an empty slot, so every key is legal and one cache line answers a probe. Collisions go to the next slot. The slot
is taken from the low bits of the hash: growing then writes two sequential streams, and keys that come in the slot
order of another table do not pile up.

While a table grows there are two arrays, and `move` brings the slots of the old one over, whole runs at a time, in
their order from an empty slot on. So the place of a key's home slot before or behind the last slot moved tells which
array holds the key, and every search is one probe of one array. `plan`, uint64 [5], says how far that is:

- MASK: capacity of `slots`, minus 1;
- AWAY: distance from `slots` to the old array in words, by which kernels reach both from one base;
- OLD_MASK: capacity of the old array, minus 1;
- START: the old slot (an empty one) where moving began;
- MOVED: the number of old slots moved; a key whose home is among them is in `slots`.

A table that is not growing has OLD_MASK 0.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from lanner.kernels.hashing.cpu import Word
from lanner.kernels.simd import get, prefetch, put

MASK, AWAY, OLD_MASK, START, MOVED = range(5)
AHEAD = 16
ONE, TWO = np.uint64(1), np.uint64(2)


def settled(slots: np.ndarray) -> np.ndarray:
    """The plan of a table that is not growing."""
    return np.array([len(slots) // 2 - 1, 0, 0, 0, 0], np.uint64)


def growing(slots: np.ndarray, old: np.ndarray) -> np.ndarray:
    """The plan of a table that begins to grow from `old` into the larger `slots`; both lie on whole cache lines."""
    away = (old.ctypes.data - slots.ctypes.data) // 8 % 2**64
    return np.array([len(slots) // 2 - 1, away, len(old) // 2 - 1, _first_empty(old), 0], np.uint64)


@nb.njit(nogil=True, inline="always")
def scrambled(key: np.int64) -> Word:
    """The hash of a key; its low bits number the home slot, where the search for the key begins."""
    x = np.uint64(key)
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return x ^ (x >> np.uint64(32))


@nb.njit(nogil=True, inline="always")
def home(plan: Any, key: np.int64) -> tuple[Word, Word, Word]:
    """(base, last, at): the key's array is slots[base:base + last + 1], and its home slot is at base + at."""
    x = scrambled(key)
    base, last = np.uint64(0), plan[MASK] << ONE | ONE
    if plan[OLD_MASK] != 0 and ((x - plan[START]) & plan[OLD_MASK]) >= plan[MOVED]:
        base, last = plan[AWAY], plan[OLD_MASK] << ONE | ONE
    return base, last, (x << ONE) & last


@nb.njit(nogil=True, inline="always")
def fetch(slots: np.ndarray, plan: Any, key: np.int64) -> None:
    """Ask for the cache line of the key's home slot."""
    base, _, at = home(plan, key)
    prefetch(slots, base + at)


@nb.njit(nogil=True, inline="always")
def place(slots: np.ndarray, plan: Any, key: np.int64) -> Word:
    """Index of the key word of `key`'s slot, or of the empty slot where it belongs; by `get` and `put` alone."""
    base, last, at = home(plan, key)
    while get(slots, base + at | ONE) != 0 and get(slots, base + at) != key:
        at = (at + TWO) & last
    return base + at


@nb.njit(nogil=True, inline="always")
def fields(plan: np.ndarray) -> tuple[Word, Word, Word, Word, Word]:
    """The plan in registers."""
    return plan[MASK], plan[AWAY], plan[OLD_MASK], plan[START], plan[MOVED]


@nb.njit(nogil=True, cache=True)
def find(begin: int, end: int, slots: np.ndarray, plan: np.ndarray, keys: np.ndarray, rows: np.ndarray) -> None:
    """rows[i] = value of keys[i], minus one (so -1 where the key is absent), for begin <= i < end."""
    held = fields(plan)
    for i in range(begin, end):
        if i + AHEAD < end:
            fetch(slots, held, np.int64(keys[i + AHEAD]))
        rows[i] = get(slots, place(slots, held, np.int64(keys[i])) | ONE) - 1


@nb.njit(nogil=True, cache=True)
def insert(
    slots: np.ndarray, plan: np.ndarray, keys: np.ndarray, rows: np.ndarray, begin: int, used: int, limit: int
) -> tuple[int, int]:
    """Store rows[i] + 1 under keys[i] from i = begin on, until the keys end or `limit` slots are in use.

    Returns (i, used) where it stopped.
    """
    count, held = keys.shape[0], fields(plan)
    for i in range(begin, count):
        if used >= limit:
            return i, used
        if i + AHEAD < count:
            fetch(slots, held, np.int64(keys[i + AHEAD]))
        at = place(slots, held, np.int64(keys[i]))
        if get(slots, at | ONE) == 0:
            put(slots, at, np.int64(keys[i]))
            used += 1
        put(slots, at | ONE, rows[i] + 1)
    return count, used


@nb.njit(nogil=True, cache=True)
def assign(
    slots: np.ndarray, plan: np.ndarray, keys: np.ndarray, rows: np.ndarray, begin: int, used: int, limit: int
) -> tuple[int, int]:
    """rows[i] = row of keys[i]; a new key gets row `used`. Stops and returns like `insert`."""
    count, held = keys.shape[0], fields(plan)
    for i in range(begin, count):
        if used >= limit:
            return i, used
        if i + AHEAD < count:
            fetch(slots, held, np.int64(keys[i + AHEAD]))
        at = place(slots, held, np.int64(keys[i]))
        if get(slots, at | ONE) == 0:
            put(slots, at, np.int64(keys[i]))
            used += 1
            put(slots, at | ONE, used)
        rows[i] = get(slots, at | ONE) - 1
    return count, used


@nb.njit(nogil=True, cache=True)
def erase(slots: np.ndarray, plan: np.ndarray, keys: np.ndarray, rows: np.ndarray) -> int:
    """Take keys out; rows[i] = the row keys[i] had, or -1. Returns how many were there.

    The gap is closed by moving later slots of the run back, so no marker of a deleted slot is needed and searches
    never grow longer by deletion.
    """
    erased, held = 0, fields(plan)
    for i in range(keys.shape[0]):
        if i + AHEAD < keys.shape[0]:
            fetch(slots, held, np.int64(keys[i + AHEAD]))
        found = place(slots, held, np.int64(keys[i]))
        rows[i] = get(slots, found | ONE) - 1
        if rows[i] >= 0:
            base, last, _ = home(held, np.int64(keys[i]))
            _close(slots, base, last, found - base)
            erased += 1
    return erased


@nb.njit(nogil=True)
def _close(slots: np.ndarray, base: Word, last: Word, gap: Word) -> None:
    """Empty the slot at base + gap and move back the slots behind it that belong before them."""
    at = (gap + TWO) & last
    while get(slots, base + at | ONE) != 0:
        wanted = (scrambled(get(slots, base + at)) << ONE) & last
        if ((at - wanted) & last) >= ((at - gap) & last):
            put(slots, base + gap, get(slots, base + at))
            put(slots, base + gap | ONE, get(slots, base + at | ONE))
            gap = at
        at = (at + TWO) & last
    put(slots, base + gap | ONE, 0)


@nb.njit(nogil=True, cache=True)
def _first_empty(slots: np.ndarray) -> int:
    """The first empty slot."""
    slot = 0
    while slots[2 * slot + 1] != 0:
        slot += 1
    return slot


@nb.njit(nogil=True, cache=True)
def move(slots: np.ndarray, old: np.ndarray, plan: np.ndarray, count: int) -> bool:
    """Move at least `count` more old slots, and the rest of the run at the end; whether all are moved now.

    Slots moved are empty afterwards: keys that are put into the last runs before START may reach beyond it.
    """
    size, last = plan[OLD_MASK] + ONE, plan[MASK] << ONE | ONE
    moved, target = plan[MOVED], min(plan[MOVED] + np.uint64(count), plan[OLD_MASK] + ONE)
    slot = (plan[START] + moved) & plan[OLD_MASK]
    while moved < target or old[slot << ONE | ONE] != 0:
        value = old[slot << ONE | ONE]
        if value != 0:
            key = old[slot << ONE]
            at = (scrambled(key) << ONE) & last
            while slots[at | ONE] != 0:
                at = (at + TWO) & last
            slots[at], slots[at | ONE] = key, value
            old[slot << ONE | ONE] = 0
        moved += ONE
        slot = (slot + ONE) & plan[OLD_MASK]
    plan[MOVED] = moved
    return bool(moved >= size)


@nb.njit(nogil=True, cache=True)
def items(slots: np.ndarray, keys: np.ndarray, values: np.ndarray) -> int:
    """All (key, value) pairs of one array in slot order; returns how many."""
    n = 0
    for s in range(0, slots.shape[0], 2):
        if slots[s + 1] != 0:
            keys[n], values[n] = slots[s], slots[s + 1]
            n += 1
    return n
