"""`Wire`: exchanges between all processes of a group, in sizes that differ from pair to pair."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from lanner.errors import LannerError
from lanner.kernels.memory import empty_tensor

Array = np.ndarray[Any, Any]

_MESSAGE = 1024  # bytes of an error message that other processes get to see


class Wire:
    """A process group of its own over the ranks of `group` (default: all), so that nobody else's calls get between.

    Every rank must construct its wires, and call each wire's methods, in the same order; each wire may be used by one
    thread at a time. Only what Gloo offers is used; with NCCL, tensors travel through the current CUDA device.
    A lost or silent peer raises LannerError after the timeout of `group`, at once where its connection broke.
    `parent` is the group itself, which wires leave alone.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        parent = dist.group.WORLD if group is None else group
        assert parent is not None, "torch.distributed is initialised"
        self.parent, ranks = parent, dist.get_process_group_ranks(parent)
        self.rank, self.world_size = dist.get_rank(parent), len(ranks)
        try:
            self._group = dist.new_group(ranks, timeout=_timeout(parent), backend=dist.get_backend(parent))
        except RuntimeError as error:
            raise self.lost(error) from error
        on_cuda = dist.get_backend(self._group) == "nccl"
        self._device = torch.device("cuda", torch.cuda.current_device()) if on_cuda else torch.device("cpu")

    def exchange(self, data: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """The pieces that all ranks sent to this one, in rank order.

        `data` has the pieces for rank 0, 1, ... one after another, of sent[0], sent[1], ... elements (rows, where
        it has two dimensions); `received` gives the sizes of the pieces that arrive. Sizes may be 0.
        """
        out = self._empty((sum(received), *data.shape[1:]), data.dtype)
        self._call(dist.all_to_all_single, out, data.to(self._device).contiguous(), list(received), list(sent))
        return out.to(data.device)

    def swap(self, values: Array) -> Array:
        """`exchange` where each pair's piece is a row of `values`, int64 [ranks, k]; returns one row from each rank."""
        data = torch.from_numpy(np.ascontiguousarray(values)).to(self._device)
        out = torch.empty_like(data)
        self._call(dist.all_to_all_single, out, data)
        return np.asarray(out.cpu().numpy())

    def messages(self, own: str) -> list[str]:
        """What every rank has to say (the first bytes of it), in rank order."""
        text = own.encode()[:_MESSAGE]
        words = np.zeros((self.world_size, _MESSAGE // 8), np.int64)
        words.view(np.uint8)[:, : len(text)] = np.frombuffer(text, np.uint8)
        return [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in self.swap(words)]

    def _empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if dtype is torch.float32 and self._device.type == "cpu":
            return empty_tensor(shape)  # fresh memory costs as much as the exchange
        return torch.empty(shape, dtype=dtype, device=self._device)

    def _call(self, collective: Any, *arguments: Any) -> None:
        try:
            collective(*arguments, group=self._group)
        except RuntimeError as error:
            raise self.lost(error) from error

    def lost(self, error: RuntimeError) -> LannerError:
        """What `torch.distributed` means where it reports `error` between these processes."""
        return LannerError(
            f"rank {self.rank}: exchange with the other {self.world_size - 1} processes failed; one of them has "
            f"ended or does not answer: {error}"
        )


def _timeout(group: dist.ProcessGroup) -> timedelta | None:
    """How long collectives of `group` may wait; None, the default, where its backend does not tell."""
    device = torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")
    options = getattr(group._get_backend(device), "options", None)
    return getattr(options, "_timeout", None)
