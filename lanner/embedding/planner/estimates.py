"""`Estimate`: what a plan takes of each device, in bytes and seconds, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lanner.embedding.planner import costs, memory
from lanner.embedding.planner.costs import PHASES, Seconds
from lanner.embedding.planner.devices import Devices
from lanner.embedding.planner.memory import PARTS, Bytes
from lanner.embedding.planner.search import best_plan
from lanner.embedding.planner.workload import Load, Workload
from lanner.embedding.sharding.placement import Placement, Plan
from lanner.errors import ConfigError
from lanner.quantities import bytes_text

_NAMED = 3
"""Tables that an error names."""


@dataclass(frozen=True)
class Estimate:
    """Of one plan: bytes [parts, ranks] and seconds of a step [phases, ranks]."""

    plan: Plan
    workload: Workload
    devices: Devices
    bytes: Bytes
    seconds: Seconds

    @property
    def held(self) -> Bytes:
        """Bytes by rank [ranks]."""
        total: Bytes = self.bytes.sum(0)
        return total

    @property
    def step_seconds(self) -> float:
        """Seconds of a step: ranks wait for each other between its phases."""
        return float(self.seconds.max(1).sum())

    @property
    def fits(self) -> bool:
        """Whether every rank's memory is enough."""
        return bool((self.held <= self.devices.memory).all())

    def of_table(self, load: Load) -> tuple[Bytes, float]:
        """Bytes of one table by rank [ranks], exchange buffers included, and the seconds of its slowest rank."""
        placement, batch = self.plan.tables[load.name], self.workload.batch_size
        held: Bytes = memory.of_table(load, placement, batch, self.devices.count).sum(0)
        return held, float(costs.of_table(load, placement, self.devices, batch).sum(0).max())

    def annotated(self) -> Plan:
        """The plan with its predictions as notes, for its YAML form."""
        tables = {}
        for load in self.workload.loads:
            held, seconds = self.of_table(load)
            size = f"{load.rows} x {load.table.dim} {load.table.dtype}"
            tables[load.name] = {"size": size, "bytes": bytes_text(held.max()), "step": _milliseconds(seconds)}
        devices = [
            {
                "rank": rank,
                "bytes": bytes_text(held),
                "free": bytes_text(self.devices.memory),
                "step": _milliseconds(busy),
            }
            for rank, (held, busy) in enumerate(zip(self.held, self.seconds.sum(0), strict=True))
        ]
        notes = {"batch_size": self.workload.batch_size, "step": _milliseconds(self.step_seconds), "devices": devices}
        return replace(self.plan, notes={"estimate": notes}, table_notes=tables)

    def to_json(self) -> dict[str, Any]:
        """All figures, in bytes and seconds."""
        free = self.devices.memory
        devices = [
            {
                "rank": rank,
                "node": rank // self.devices.per_node,
                "bytes": dict(zip((*PARTS, "total"), map(int, (*self.bytes[:, rank], self.held[rank])), strict=True)),
                "free": free,
                "seconds": dict(zip(PHASES, map(float, self.seconds[:, rank]), strict=True)),
            }
            for rank in range(self.devices.count)
        ]
        return {
            "world_size": self.plan.world_size,
            "batch_size": self.workload.batch_size,
            "fits": self.fits,
            "step_seconds": self.step_seconds,
            "samples_per_second": self.workload.batch_size / self.step_seconds if self.step_seconds else None,
            "devices": devices,
            "tables": [self._table_json(load) for load in self.workload.loads],
        }

    def _table_json(self, load: Load) -> dict[str, Any]:
        placement, (held, seconds) = self.plan.tables[load.name], self.of_table(load)
        return {
            "name": load.name,
            "kind": placement.kind,
            "ranks": placement.ranks,
            "rows": load.rows,
            "dynamic": load.table.rows == "dynamic",
            "dim": load.table.dim,
            "dtype": load.table.dtype,
            "ids": load.ids,
            "bytes": [int(each) for each in held],
            "seconds": seconds,
            "why": reason(load, placement, self.devices),
        }


def plan(workload: Workload, devices: Devices) -> Estimate:
    """The fastest placement found of all tables that fits, and its estimate.

    Raises ConfigError with needed and free bytes of each device where none fits.
    """
    found = estimate(workload, best_plan(workload, devices), devices)
    require_fits(workload, found.plan, [devices.memory] * devices.count)
    return found


def estimate(workload: Workload, plan: Plan, devices: Devices) -> Estimate:
    """What a given plan takes. Raises ConfigError where it does not suit the tables or the number of devices."""
    plan.check(workload.tables)
    if plan.world_size != devices.count:
        raise ConfigError(f"plan: it is for {plan.world_size} processes, but {devices.count} are to run")
    seconds = costs.base(workload, devices)
    for load in workload.loads:
        seconds += costs.of_table(load, plan.tables[load.name], devices, workload.batch_size)
    return Estimate(plan, workload, devices, memory.needed(workload, plan), seconds)


def require_fits(workload: Workload, plan: Plan, free: Sequence[int], ranks: Sequence[int] | None = None) -> None:
    """Raise ConfigError where `plan` needs more than the `free` bytes of a rank, naming the largest tables there.

    `free` is what the whole process may take, its own size included; `ranks` are those looked at (default: all).
    """
    needs = memory.needed(workload, plan).sum(0)
    ranks = range(plan.world_size) if ranks is None else ranks
    short = [rank for rank in ranks if needs[rank] > free[rank]]
    if not short:
        return
    devices = "; ".join(
        f"rank {rank} needs {int(needs[rank]):,} bytes ({bytes_text(needs[rank])}), "
        f"{free[rank]:,} ({bytes_text(free[rank])}) are free"
        for rank in short
    )
    held = {
        load.name: float(
            memory.of_table(load, plan.tables[load.name], workload.batch_size, plan.world_size)[:, rank].sum()
        )
        for rank in short[:1]
        for load in workload.loads
    }
    largest = sorted(held, key=lambda name: -held[name])[:_NAMED]
    tables = ", ".join(f"{name!r} {bytes_text(held[name])}" for name in largest)
    raise ConfigError(f"memory: {devices}. Largest tables on rank {short[0]}: {tables or 'none'}")


def reason(load: Load, placement: Placement, devices: Devices) -> str:
    """Why a table may lie as it does, in a few words."""
    if devices.count == 1:
        return "one process"
    if placement.kind == "data":
        return "copies: cheaper than sending rows"
    if placement.kind == "table":
        return "whole: fewest messages"
    whole = memory.of_table(load, Placement("table", (0,)), 1, devices.count)[:3, 0].sum()
    if whole > devices.memory - memory.PROCESS:
        return "too large for one device"
    return "shares its work out"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
