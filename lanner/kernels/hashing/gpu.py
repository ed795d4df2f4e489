"""`DeviceIndex`, the hash index on a CUDA device: int64 key → row, in batches of tensors.

Open addressing in one tensor of 16-byte slots (key, row + 1), at most half full, so that a probe is one memory
transaction and few lanes probe twice. A slot is taken by a 64-bit compare-and-swap on its key. The key -2^63 marks a
free slot and, being a legal key too, lives in a slot of its own behind the others. An erased key keeps its slot,
with row + 1 = 0, until the index is rebuilt. Batches are made distinct first, so no two programs work on one key and
results do not depend on their order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from lanner.errors import DataError
from lanner.kernels.gpu import OPTIONS
from lanner.kernels.unique.gpu import distinct_of

_SMALLEST = 64
_SIZE = 128  # keys a program
_FREE = tl.constexpr(-(2**63))
_MIX = tl.constexpr(0xD6E8FEB86659FD93)


class DeviceIndex:
    """A map from int64 keys to rows on `device`, with the methods of `lanner.hashindex.HashIndex` on its tensors.

    It grows by being rebuilt in twice the memory. Whatever changes it waits for the device once.
    """

    def __init__(self, device: torch.device | str, capacity: int = 0) -> None:
        self._device = torch.device(device)
        self._rebuild(capacity)

    def _rebuild(self, count: int, keys: Tensor | None = None, rows: Tensor | None = None) -> None:
        """New slots with room for `count` keys, filled with `keys`."""
        self._mask = max(triton.next_power_of_2(2 * count), _SMALLEST) - 1
        self.slots = torch.zeros((self._mask + 2, 2), dtype=torch.int64, device=self._device)
        self.slots[:, 0] = _FREE.value
        self._size = self._used = 0
        if keys is not None and rows is not None:
            self._put(keys, rows)

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return self.slots.numel() * 8

    def find(self, keys: Tensor, out: Tensor | None = None) -> Tensor:
        """Rows of `keys`, int64 [n], -1 where a key is absent; written to `out` when given. Nothing waits."""
        return self._search(_checked(keys), out, erase=False)

    def insert(self, keys: Tensor, rows: Tensor) -> int:
        """Set the row of each key; of a key given twice the last row counts. Returns how many keys were new.

        Raises DataError when lengths differ or a row is negative.
        """
        keys, before = _checked(keys), self._size
        if len(keys) != len(rows):
            raise DataError(f"hash index: {len(keys)} keys with {len(rows)} rows")
        if len(rows) and (lowest := int(rows.min())) < 0:
            raise DataError(f"hash index: row {lowest} is negative")
        found = distinct_of(keys)
        last = torch.zeros_like(found.ids).scatter_reduce_(0, found.inverse, _numbers(keys), "amax")
        self._put(found.ids, rows.long()[last])
        return self._size - before

    def assign(self, keys: Tensor) -> Tensor:
        """Rows of `keys`, int64 [n]; new keys get the next rows, len(index) onwards, in order of appearance.

        Only for an index whose rows are 0..len-1: one filled by `assign` alone.
        """
        keys = _checked(keys)
        rows = self.find(keys)
        absent = (rows < 0).nonzero()[:, 0]
        if len(absent):
            found = distinct_of(keys[absent])
            rows[absent] = self._size + found.inverse
            self._put(found.ids, self._size + _numbers(found.ids))
        return rows

    def erase(self, keys: Tensor) -> Tensor:
        """Take keys out; returns the rows they had, int64 [n], -1 where a key was absent (or given before)."""
        keys = _checked(keys)
        found, rows = distinct_of(keys), torch.full_like(keys, -1)
        rows[found.firsts] = self._search(found.ids, None, erase=True)
        self._size -= int((rows >= 0).sum())
        return rows

    def reserve(self, count: int) -> None:
        """Make room for `count` keys in all, so that inserts up to there do not rebuild the index."""
        if 2 * (count + self._used - self._size) > self._mask + 1:
            self._rebuild(count, *self.items())

    def items(self) -> tuple[Tensor, Tensor]:
        """All keys and their rows, int64 [len] each, in no particular order."""
        held = self.slots[self.slots[:, 1] != 0]
        return held[:, 0].contiguous(), held[:, 1] - 1

    def _search(self, keys: Tensor, out: Tensor | None, erase: bool) -> Tensor:
        rows = torch.empty_like(keys) if out is None else out
        if len(keys):
            grid = (triton.cdiv(len(keys), _SIZE),)
            _search[grid](self.slots, keys, rows, len(keys), self._mask, erase, _SIZE, num_warps=1, **OPTIONS)
        return rows

    def _put(self, keys: Tensor, rows: Tensor) -> None:
        """Set the rows of distinct keys."""
        if not len(keys):
            return
        self.reserve(self._size + len(keys))
        added = torch.zeros(1, dtype=torch.int64, device=self._device)
        grid = (triton.cdiv(len(keys), _SIZE),)
        _put[grid](self.slots, keys, rows, added, len(keys), self._mask, _SIZE, num_warps=1, **OPTIONS)
        self._size += int(added)
        self._used += int(added)


def _checked(keys: Tensor) -> Tensor:
    if keys.ndim != 1 or keys.dtype not in (torch.int64, torch.uint32):
        raise DataError(f"hash index: keys are {keys.dtype} [{keys.ndim}-D], expected int64 or uint32, 1-D")
    return keys.long().contiguous()


def _numbers(like: Tensor) -> Tensor:
    return torch.arange(len(like), device=like.device)


@triton.jit
def _home(keys: tl.tensor, mask: tl.tensor) -> tl.tensor:
    """The slot where the search for each key begins."""
    x = keys.to(tl.uint64, bitcast=True)
    x = (x ^ (x >> 32)) * _MIX
    x = (x ^ (x >> 32)).to(tl.int64, bitcast=True)
    return tl.where(keys == _FREE, mask + 1, x & mask)


@triton.jit(do_not_specialize=["count", "mask"])
def _search(
    slots: tl.tensor,
    keys: tl.tensor,
    rows: tl.tensor,
    count: tl.int64,
    mask: tl.int64,
    erase: tl.constexpr,
    size: tl.constexpr,
) -> None:
    """Rows of keys, -1 where absent; with `erase`, distinct keys are taken out."""
    places = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    held = places < count
    key = tl.load(keys + places, mask=held, other=0)
    at, value, seeking = _home(key, mask), tl.zeros([size], tl.int64), held
    while tl.max(seeking.to(tl.int32)) > 0:
        seen = tl.load(slots + 2 * at, mask=seeking, other=0)
        hit = seeking & (seen == key)
        value = tl.where(hit, tl.load(slots + 2 * at + 1, mask=hit, other=0), value)
        seeking = seeking & (seen != key) & (seen != _FREE)
        at = tl.where(seeking, (at + 1) & mask, at)
    tl.store(rows + places, value - 1, mask=held)
    if erase:
        tl.store(slots + 2 * at + 1, tl.zeros([size], tl.int64), mask=held & (value > 0))


@triton.jit(do_not_specialize=["count", "mask"])
def _put(
    slots: tl.tensor,
    keys: tl.tensor,
    rows: tl.tensor,
    added: tl.tensor,
    count: tl.int64,
    mask: tl.int64,
    size: tl.constexpr,
) -> None:
    """Set the rows of distinct keys; counts in `added` those that had none."""
    places = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    held = places < count
    key = tl.load(keys + places, mask=held, other=_FREE)
    at, seeking = _home(key, mask), held
    while tl.max(seeking.to(tl.int32)) > 0:
        # Lanes that are done swap their key for itself: a compare-and-swap takes no mask.
        seen = tl.atomic_cas(slots + 2 * at, tl.where(seeking, _FREE, key), key)
        seeking = seeking & (seen != _FREE) & (seen != key)
        at = tl.where(seeking, (at + 1) & mask, at)
    before = tl.load(slots + 2 * at + 1, mask=held, other=1)
    tl.store(slots + 2 * at + 1, tl.load(rows + places, mask=held, other=0) + 1, mask=held)
    tl.atomic_add(added, tl.sum((before == 0).to(tl.int64)))
