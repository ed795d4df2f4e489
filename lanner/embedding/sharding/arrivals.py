"""`Arrivals`: the ids that all ranks ask this one for, and the lines that address rows and gradients by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from lanner.embedding.sharding.shards import Array
from lanner.kernels.layout import FIELDS, NONE


@dataclass(frozen=True)
class Arrivals:
    """The ids that came from every source: a *run* for each source, channel and table that this rank holds, in order.

    ids      int64 [n] or [n, 2] (see `Routes`), run after run
    counts   int64 [sources, tables]: the ids of each run
    held     for each channel the numbers of the tables that this rank holds a block of
    """

    ids: Tensor
    counts: Array
    held: tuple[tuple[int, ...], ...]

    @cached_property
    def offsets(self) -> Tensor:
        """int64 [runs + 1]: where each run begins; to the kernels a run is a bag of a batch of one sample."""
        runs = self.counts[:, [table for held in self.held for table in held]]
        return torch.from_numpy(np.concatenate([[0], np.cumsum(runs)]))

    @property
    def keys(self) -> Tensor:
        """The ids alone, int64 [n]."""
        return self.ids if self.ids.dim() == 1 else self.ids[:, 0].contiguous()

    def places(self, table: int) -> Array:
        """Which of the ids are a table's, int64 [n]."""
        ends = self.offsets.tolist()
        return np.concatenate([np.arange(ends[run], ends[run + 1]) for run in self.runs(table)])

    def rows(self, channel: int) -> list[int]:
        """Rows of a channel by source."""
        return [int(count) for count in self.counts[:, list(self.held[channel])].sum(1)]

    def runs(self, table: int) -> list[int]:
        """The numbers of a table's runs, by source."""
        order = [number for held in self.held for number in held]
        return [source * len(order) + order.index(table) for source in range(len(self.counts))]

    def lines(self, channel: int, spans: Mapping[int, slice], width: int, sources: Sequence[int]) -> Array:
        """A layout of the channel's runs from `sources`: their rows [n, width] lie in order of the runs.

        `spans` says where the tables (by number) lie in the joint array that the layout is for.
        """
        counts = self.counts[np.array(sources)[:, None], np.array(self.held[channel], np.int64)]
        begins = (np.cumsum(counts) - counts.reshape(-1)).reshape(counts.shape) * width
        lines = [
            (self.runs(table)[source], span.start, span.stop - span.start, NONE, begins[i, j], width)
            for j, table in enumerate(self.held[channel])
            if (span := spans.get(table)) is not None
            for i, source in enumerate(sources)
        ]
        return np.array(sorted(lines, key=lambda line: line[1]), np.int64).reshape(-1, FIELDS)
