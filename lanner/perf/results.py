"""What a run found: one `Level` for each load, and the `Report` that holds them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from lanner.perf.settings import Settings
from lanner.perf.statistics import Breakdown, Latency


class Level(BaseModel):
    """One measured window.

    `load` is the concurrency or the rate; `requests` are good ones, `errors` failed ones, which count in nothing
    else; `unanswered` were sent or planned but given up after the time limit. `client_cpu` is the share of one core
    the client used: near 1 it is the client that limits the throughput. `spread` tells how unsteady the rate was,
    `growth` by how many seconds the median latency grew from the first to the last third of the requests.
    """

    model_config = ConfigDict(extra="forbid")
    load: float
    seconds: float
    requests: int
    errors: int
    unanswered: int
    error_texts: dict[str, int]
    requests_per_s: float
    rows_per_s: float
    latency: Latency | None
    breakdown: Breakdown | None
    rows_per_execution: float | None
    server_failures: int | None
    spread: float
    growth: float = 0.0
    client_cpu: float


class Report(BaseModel):
    """A whole run. `levels` may be fewer than asked for when it was `interrupted`."""

    model_config = ConfigDict(extra="forbid")
    settings: Settings
    server: str
    model: dict[str, Any]
    started: str
    distinct_requests: int
    request_bytes: int
    levels: list[Level]
    interrupted: bool = False

    @property
    def load_name(self) -> str:
        return "rate" if self.settings.rates else "concurrency"

    @property
    def best(self) -> Level | None:
        """The level with the highest throughput whose p99 is within the limit; None without a limit or such a one."""
        limit = self.settings.latency_limit
        fitting = [level for level in self.levels if level.latency and limit and level.latency.p99 <= limit]
        return max(fitting, key=lambda level: level.rows_per_s, default=None)
