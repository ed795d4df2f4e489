"""`Processes`: those that train one model together, and what they tell each other beside rows and gradients.

What travels here is small: some numbers a step, predictions, outcomes. Rows of tables and their gradients have ways of
their own (`lanner.embedding.sharding`); dense gradients go through `DistributedDataParallel`.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lanner.embedding.sharding.peers import Peers

T = TypeVar("T")
Array = NDArray[Any]


class Processes(Peers):
    """This process among those of a wire (None: it is alone, and nothing here costs anything).

    Every process must call the same methods in the same order. One that has ended, or does not answer within the
    group's timeout, raises LannerError in the others.
    """

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and shows."""
        return self.rank == 0

    def numbers(self, *own: float) -> NDArray[np.float64]:
        """What every process gave, float64 [world_size, k], the same everywhere."""
        bits = np.array(own, np.float64).view(np.int64)
        return np.ascontiguousarray(self.tell(lambda: list(bits), len(own))).view(np.float64)

    def any(self, own: bool) -> bool:
        """Whether it holds in any process."""
        return bool(self.tell(lambda: [own], 1).any())

    def told(self, find: Callable[[], T]) -> T:
        """What `find()` returns in the first process, the only one to call it; its error is raised everywhere."""
        found: list[T] = []
        data = b""

        def ask() -> list[int]:
            nonlocal data
            if self.is_first:
                found.append(find())
                data = pickle.dumps(found[0], pickle.HIGHEST_PROTOCOL) if self._wire else b""
            return [len(data)]

        size = int(self.tell(ask, 1)[0, 0])
        if self._wire is None:
            return found[0]
        sent, received = [0] * self.world_size, [0] * self.world_size
        if self.is_first:
            sent[1:] = [size] * (self.world_size - 1)
        else:
            received[0] = size
        copies = bytearray(data * (self.world_size - 1))
        outgoing = torch.frombuffer(copies, dtype=torch.uint8) if copies else torch.empty(0, dtype=torch.uint8)
        arrived = self._wire.exchange(outgoing, sent, received)
        return found[0] if found else pickle.loads(arrived.numpy().tobytes())

    def texts(self, own: str) -> list[str]:
        """What every process gave, in the first one; nothing to read in the others."""
        if self._wire is None:
            return [own]
        data, idle = np.frombuffer(bytearray(own.encode()), np.uint8), [0] * self.world_size
        sizes = self.tell(lambda: [len(data)], 1)[:, 0].tolist()
        sent = [len(data), *idle[1:]]
        arrived = self._wire.exchange(torch.from_numpy(data), sent, sizes if self.is_first else idle).numpy()
        return [piece.tobytes().decode() for piece in np.split(arrived, np.cumsum(sizes)[:-1])]

    def rows(self, *columns: Array | None) -> tuple[Array | None, ...]:
        """All processes' rows, one process's after another's, in the first process; no rows in the others.

        Float32 arrays of [rows] or [rows, k] with as many rows each; what is None stays so.
        """
        if self._wire is None:
            return columns
        given = [column[:, None] if column.ndim == 1 else column for column in columns if column is not None]
        packed = np.concatenate(given, axis=1, dtype=np.float32)
        counts = self.tell(lambda: [len(packed)], 1)[:, 0].tolist()
        sent = [len(packed), *[0] * (self.world_size - 1)]
        received = counts if self.is_first else [0] * self.world_size
        arrived = self._wire.exchange(torch.from_numpy(packed), sent, received).numpy()
        pieces = iter(np.split(arrived, np.cumsum([column.shape[1] for column in given])[:-1], axis=1))
        whole = (None if column is None else (next(pieces), column.ndim) for column in columns)
        return tuple(None if each is None else each[0][:, 0] if each[1] == 1 else each[0] for each in whole)

    def averaging(self, model: nn.Module) -> Callable[..., Any]:
        """`model` such that its backward averages the gradients outside the embeddings over all processes.

        All processes get the first one's weights and lasting buffers there. Embeddings take their steps in backward
        themselves.
        """
        if self._wire is None:
            return model
        names = [name for name, _ in (*model.named_parameters(), *model.named_buffers())]
        shared = {name for name in model.state_dict() if not name.startswith("embedding.")}
        # Weight gradients come out of `lanner.kernels.linear` transposed; copying them so costs next to nothing.
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
            model, [name for name in names if name not in shared]
        )
        with self.answering():
            return DistributedDataParallel(model, process_group=self._wire.parent, gradient_as_bucket_view=True)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Where gradients are averaged: raise LannerError where that fails because another process has ended."""
        try:
            yield
        except RuntimeError as error:
            if self._wire is None or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
                raise
            raise self._wire.lost(error) from error
