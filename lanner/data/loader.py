"""`Loader`: batches of a split, read ahead by background threads, in an order that can be resumed anywhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Event

from lanner.data.batch import Batch
from lanner.data.order import Shuffle
from lanner.data.split import Split
from lanner.errors import ConfigError, DataError


class Loader:
    """Cuts a split into global batches of `batch_size` rows, the last one as short as it comes out.

    With `shuffle` the rows of epoch n stand in a pseudo-random order given by `seed` and n alone (see
    `lanner.kernels.permutation`); with `window` only so many rows are mixed at a time, for splits larger than memory:
    they are read in long stretches, a window ahead (see `lanner.data.order`). Rank r of `world_size` gets its
    contiguous share of every global batch, which may be 0 rows, so all ranks make the same number of steps and the
    batches do not depend on the number of ranks. `workers` threads keep up to `prefetch` batches ready; the order does
    not depend on their number.
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        prefetch: int = 2,
        workers: int = 1,
        window: int | None = None,
    ) -> None:
        """Raises ConfigError for an option out of range, DataError when the split has no rows."""
        least_1 = {"batch_size": batch_size, "world_size": world_size, "workers": workers, "window": window}
        for name, value in least_1.items():
            if value is not None and value < 1:
                raise ConfigError(f"loader: {name} is {value}; expected at least 1")
        if not 0 <= rank < world_size:
            raise ConfigError(f"loader: rank is {rank}; expected 0..{world_size - 1}")
        if prefetch < 0:
            raise ConfigError(f"loader: prefetch is {prefetch}; expected at least 0")
        if not split.rows:
            raise DataError(f"{split.name}: no rows")
        self.split, self.batch_size = split, batch_size
        self._shuffle = Shuffle(split.rows, window, seed) if shuffle else None
        self.rank, self.world_size, self.prefetch, self.workers = rank, world_size, prefetch, workers

    def __len__(self) -> int:
        """Global batches in an epoch, the same on every rank."""
        return -(-self.split.rows // self.batch_size)

    def share(self, batch: int, rank: int | None = None) -> tuple[int, int]:
        """First place and the place after the last that a rank (default: this one) gets of global batch `batch`."""
        rank = self.rank if rank is None else rank
        first = batch * self.batch_size
        rows = min(self.batch_size, self.split.rows - first)
        return first + rows * rank // self.world_size, first + rows * (rank + 1) // self.world_size

    def read(self, epoch: int, batch: int) -> Batch:
        """This rank's share of one global batch of one epoch, read on the caller's thread."""
        if not 0 <= batch < len(self):
            raise IndexError(f"batch {batch} of {len(self)}")
        begin, end = self.share(batch)
        if self._shuffle is None:
            return self.split.slice(begin, end)
        return self.split.take(self._shuffle.numbers(epoch, begin, end))

    def epoch(self, number: int, start: int = 0) -> Generator[Batch, None, None]:
        """The batches of epoch `number` from global batch `start` on.

        An error while reading ahead is raised in place of its batch, as it was. Threads end with the iterator: when
        it is used up, closed or dropped.
        """
        if not 0 <= start <= len(self):
            raise ConfigError(f"loader: epoch {number} cannot start at batch {start}; it has {len(self)}")
        if not self.prefetch:
            return (self.read(number, batch) for batch in range(start, len(self)))
        return self._read_ahead(number, start)

    def _read_ahead(self, number: int, start: int) -> Generator[Batch, None, None]:
        shuffle = self._shuffle if self._shuffle and self._shuffle.windowed else None
        pool = ThreadPoolExecutor(self.workers + bool(shuffle), thread_name_prefix="lanner-loader")
        ready: deque[Future[Batch]] = deque()
        closed, brought = Event(), shuffle.window_at(start * self.batch_size) if shuffle else 0
        try:
            for batch in range(start, len(self)):
                if shuffle:
                    coming = shuffle.window_at((batch + 1) * self.batch_size - 1) + 1
                    for window in range(brought, coming + 1):
                        pool.submit(self._bring, shuffle.stretches(number, window), closed)
                    brought = coming + 1
                ready.append(pool.submit(self.read, number, batch))
                if len(ready) > self.prefetch:
                    yield ready.popleft().result()
            while ready:
                yield ready.popleft().result()
        finally:
            closed.set()
            pool.shutdown(wait=True, cancel_futures=True)

    def _bring(self, stretches: list[tuple[int, int]], closed: Event) -> None:
        """Have the system read the rows of a window from disk in their order, for they will be asked for in another.

        What cannot be read is an error of the batch that needs it.
        """
        with suppress(DataError):
            for begin, end in stretches:
                for at in range(begin, end, self.batch_size):
                    if closed.is_set():
                        return
                    self.split.slice(at, min(at + self.batch_size, end))
