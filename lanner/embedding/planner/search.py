"""Choosing placements: the fastest plan found that fits, by placing large tables first and then improving one by one.

Where every choice is counted as bytes and seconds by rank that add up over the tables, a candidate is judged by
adding it to the sum of all other tables. Nothing is random: equal workloads and devices give equal plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lanner.embedding.planner import costs, memory
from lanner.embedding.planner.devices import Devices
from lanner.embedding.planner.workload import Load, Workload
from lanner.embedding.sharding.placement import KINDS, Placement, Plan
from lanner.embedding.sharding.shards import is_dynamic

Floats = NDArray[np.float64]

_STARTS = (KINDS, ("row",), ("table",))  # tables cannot change sides together, so more than one start is tried
_ROUNDS = 20  # of improvement; each stops early when nothing changes
_BALANCE = 0.01  # weight of the mean rank beside the slowest one, and of memory beside time
_CLEARLY = 1 + 1e-9  # better than before by more than rounding
_NARROWEST = 4  # columns of a block


@dataclass(frozen=True)
class _Choices:
    """The candidates for one table: bytes [candidates, ranks] and seconds [candidates, phases, ranks]."""

    placements: Sequence[Placement]
    bytes: Floats
    seconds: Floats


def best_plan(workload: Workload, devices: Devices) -> Plan:
    """The fastest plan found of those that fit `devices.memory`; where none does, the one that exceeds it least."""
    choices = [_choices(load, workload, devices) for load in workload.loads]
    base = memory.base(workload, devices.count).sum(0), costs.base(workload, devices)
    found = []
    for kinds in _STARTS:
        search = _Search(choices, *base, devices.memory)
        search.place(kinds)
        search.improve()
        found.append(search)
    best = min(found, key=_Search.score)
    chosen = {load.name: of.placements[at] for load, of, at in zip(workload.loads, choices, best.chosen, strict=True)}
    return Plan(devices.count, chosen)


def candidates(load: Load, devices: Devices) -> Iterator[Placement]:
    """The placements worth a look, simple ones first: what costs the same falls to the first."""
    everyone, table = tuple(range(devices.count)), load.table
    if devices.count > 1 and not is_dynamic(table):
        yield Placement("data")
    for rank in everyone:
        yield Placement("table", (rank,))
    if devices.count == 1:
        return
    yield Placement("row", everyone)
    if table.dim % devices.count == 0 and table.dim >= _NARROWEST * devices.count:
        yield Placement("column", everyone)
    if 1 < devices.nodes < devices.count and table.dim % devices.nodes == 0:
        yield Placement("two-level", tuple(devices.node(node) for node in range(devices.nodes)))


def _choices(load: Load, workload: Workload, devices: Devices) -> _Choices:
    placements, batch = list(candidates(load, devices)), workload.batch_size
    return _Choices(
        placements,
        np.stack([memory.of_table(load, each, batch, devices.count).sum(0) for each in placements]),
        np.stack([costs.of_table(load, each, devices, batch) for each in placements]),
    )


class _Search:
    """One choice for each table, none (-1) at first, and what all of them cost together."""

    def __init__(self, choices: Sequence[_Choices], held: Floats, seconds: Floats, limit: int) -> None:
        """`held` bytes [ranks] and `seconds` [phases, ranks] are what is there without tables."""
        self.chosen = [-1] * len(choices)
        self._choices, self._limit = choices, limit
        self._held, self._seconds = held.copy(), seconds.copy()

    def put(self, table: int, at: int) -> None:
        """Choose candidate `at` for a table; -1 for none."""
        for sign, number in ((-1, self.chosen[table]), (1, at)):
            if number >= 0:
                self._held += sign * self._choices[table].bytes[number]
                self._seconds += sign * self._choices[table].seconds[number]
        self.chosen[table] = at

    @cached_property
    def _large_first(self) -> list[int]:
        return sorted(range(len(self.chosen)), key=lambda table: -float(self._choices[table].bytes.sum(1).min()))

    def place(self, kinds: tuple[str, ...]) -> None:
        """Place the tables one after another, large ones first, each where it does best by then; of these kinds alone
        where the table has any.
        """
        for table in self._large_first:
            allowed = [at for at, each in enumerate(self._choices[table].placements) if each.kind in kinds]
            self.put(table, self._best(table, np.array(allowed or range(len(self._choices[table].placements)))))

    def improve(self) -> None:
        """Place each table anew where that helps, until nothing does."""
        for _ in range(_ROUNDS):
            before = list(self.chosen)
            for table in self._large_first:
                self._move(table)
            if self.chosen == before:
                return

    def _move(self, table: int) -> None:
        """Choose the best candidate where the other tables stay, if it is clearly better."""
        before, score = self.chosen[table], self.score()
        self.put(table, -1)
        self.put(table, self._best(table, np.arange(len(self._choices[table].placements))))
        over, cost = self.score()
        if (over, cost * _CLEARLY) >= score:
            self.put(table, before)

    def _best(self, table: int, allowed: NDArray[np.int64]) -> int:
        """The best of the allowed candidates of a table that is not placed."""
        of = self._choices[table]
        over, cost = self._judge(self._held + of.bytes[allowed], self._seconds + of.seconds[allowed])
        return int(allowed[np.lexsort((cost, over))[0]])

    def score(self) -> tuple[float, float]:
        """Bytes over the limit and cost in seconds: the smaller the better."""
        over, cost = self._judge(self._held[None], self._seconds[None])
        return float(over[0]), float(cost[0])

    def _judge(self, held: Floats, seconds: Floats) -> tuple[Floats, Floats]:
        """Of bytes [n, ranks] and seconds [n, phases, ranks]: bytes over the limit, and a cost in seconds [n] each."""
        over: Floats = np.maximum(held - self._limit, 0).sum(1)
        step = seconds.max(2).sum(1) + _BALANCE * seconds.sum(1).mean(1)
        cost: Floats = step * (1 + _BALANCE * held.max(1) / self._limit)
        return over, cost
