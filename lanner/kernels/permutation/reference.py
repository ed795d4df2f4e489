"""The permutation in plain Python integers: slow, for tests."""

from __future__ import annotations

from lanner.kernels.permutation import round_keys, sides

_MASK = (1 << 64) - 1


def place(position: int, total: int, seed: int, epoch: int) -> int:
    """What stands at `position` of the order of 0..total-1."""
    left, right = sides(total)
    keys = [int(key) for key in round_keys(seed, epoch)]
    value = position
    while True:
        high, low = divmod(value, right)
        for even, odd in zip(keys[::2], keys[1::2], strict=True):
            high = (high + _hash(low ^ even) * left // 2**32) % left
            low = (low + _hash(high ^ odd) * right // 2**32) % right
        value = high * right + low
        if value < total:
            return value


def _hash(value: int) -> int:
    mixed = value * 0xD6E8FEB86659FD93 & _MASK
    mixed = (mixed ^ mixed >> 32) * 0xA0761D6478BD642F & _MASK
    mixed = (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93 & _MASK
    return mixed >> 32
