"""How the processes that `torchrun` started meet, and how they learn why one of them failed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from lanner.embedding.sharding.exchange import Wire
from lanner.errors import LannerError
from lanner.kernels import parallel
from lanner.train.processes import Processes

TIMEOUT = 1800.0
"""Seconds that a process waits for the others before it gives up; writing a checkpoint must not take longer."""

_CAUSE = "lanner/cause"


def is_first() -> bool:
    """Whether this process is the one that speaks for all that `torchrun` started."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def joined(timeout: float = TIMEOUT) -> Iterator[Processes]:
    """Join the processes that `torchrun` started for the time of the block, unless they are joined already.

    Each takes its share of the machine's cores, unless LANNER_THREADS says otherwise. Where one fails, the block ends
    in the others with a LannerError that names it and its error.
    """
    if dist.is_initialized() and dist.get_world_size() > 1:
        yield Processes(Wire())
        return
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Processes(None)
        return
    torch.set_num_threads(parallel.threads())  # torchrun leaves PyTorch one thread
    store, rank, world_size = next(rendezvous("env://"))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=timeout))
    try:
        yield Processes(Wire())
    except Exception as error:
        cause = _first_cause(store, f"process {rank}: {error}")
        if cause == f"process {rank}: {error}":
            raise
        raise LannerError(cause) from error
    dist.destroy_process_group()


def _first_cause(store: Any, own: str) -> str:
    """What failed first in any process, as far as the store tells: `own`, unless another one was there before."""
    try:
        cause: str = store.compare_set(_CAUSE, "", own).decode()
    except RuntimeError:  # the process that keeps the store is gone
        return own
    return cause
