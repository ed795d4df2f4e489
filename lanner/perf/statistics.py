"""Percentiles of the client's latencies, and the server's own account of a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

PHASES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")


class Latency(BaseModel):
    """Milliseconds over the good requests of a window."""

    model_config = ConfigDict(extra="forbid")
    mean: float
    std: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, seconds: npt.NDArray[np.float64]) -> Latency | None:
        """Percentiles as NumPy interpolates them; None of an empty window."""
        if not seconds.size:
            return None
        milliseconds = seconds * 1e3
        p50, p90, p95, p99 = np.percentile(milliseconds, (50, 90, 95, 99)).tolist()
        return cls(
            mean=float(milliseconds.mean()),
            std=float(milliseconds.std()),
            p50=p50,
            p90=p90,
            p95=p95,
            p99=p99,
            max=float(milliseconds.max()),
        )


class Counters(BaseModel):
    """A model's cumulative counters: `rows` inferred, model `executions`, and count and ns of each phase."""

    model_config = ConfigDict(extra="forbid")
    rows: int = 0
    executions: int = 0
    count: dict[str, int] = {}
    ns: dict[str, int] = {}

    @classmethod
    def read(cls, answer: Mapping[str, Any] | None) -> Counters | None:
        """From the answer to the statistics call (numbers or digits), all versions together; None without one."""
        if answer is None:
            return None
        total = cls(count=dict.fromkeys(PHASES, 0), ns=dict.fromkeys(PHASES, 0))
        for model in answer.get("model_stats", ()):
            total.rows += int(model.get("inference_count", 0))
            total.executions += int(model.get("execution_count", 0))
            for phase in PHASES:
                part = model.get("inference_stats", {}).get(phase, {})
                total.count[phase] += int(part.get("count", 0))
                total.ns[phase] += int(part.get("ns", 0))
        return total

    def since(self, before: Counters) -> Counters:
        """What was added since `before`."""
        return Counters(
            rows=self.rows - before.rows,
            executions=self.executions - before.executions,
            count={phase: self.count[phase] - before.count[phase] for phase in PHASES},
            ns={phase: self.ns[phase] - before.ns[phase] for phase in PHASES},
        )

    def mean_ms(self, phase: str) -> float:
        """Milliseconds of a phase per request that went through it."""
        return self.ns[phase] / self.count[phase] / 1e6 if self.count[phase] > 0 else 0.0


class Breakdown(BaseModel):
    """Where the mean latency went, in milliseconds per request; the parts add up to the mean.

    `wait` is from the planned to the real start (open loop); `network` is everything that neither the client nor
    the server's counters account for: the wire, and the server's front end. The server's parts are None when it
    keeps no statistics, and are then inside `network`.
    """

    model_config = ConfigDict(extra="forbid")
    wait: float
    send: float
    network: float
    queue: float | None
    compute_input: float | None
    compute_infer: float | None
    compute_output: float | None
    receive: float

    @classmethod
    def of(cls, times: npt.NDArray[np.float64], server: Counters | None) -> Breakdown | None:
        """From the good requests' times [n, 5] (the columns of `Sample`) and the window's counters."""
        if not len(times):
            return None
        planned, started, sent, first, done = times.mean(axis=0) * 1e3
        parts = dict.fromkeys(("queue", "compute_input", "compute_infer", "compute_output"), None)
        known = {phase: server.mean_ms(phase) for phase in parts} if server and server.count["success"] > 0 else parts
        inside = sum(part for part in known.values() if part is not None)
        return cls(
            wait=float(started - planned),
            send=float(sent - started),
            network=max(0.0, float(first - sent) - inside),
            receive=float(done - first),
            **known,
        )


def spread(moments: npt.NDArray[np.float64], start: float, end: float, parts: int = 3) -> float:
    """How unsteady the rate was: (largest - smallest) / mean number of completions over equal parts of the window."""
    counts, _ = np.histogram(moments, parts, (start, end))
    return float((counts.max() - counts.min()) / counts.mean()) if counts.sum() else 0.0


def growth(times: npt.NDArray[np.float64]) -> float:
    """Seconds by which the median latency of the last third of requests [n, 5], by planned time, exceeds the first's.

    Under a steady rate that a server can take it stays near 0; otherwise it grows with the time measured.
    """
    if len(times) < 3:
        return 0.0
    ordered = times[np.argsort(times[:, 0], kind="stable")]
    latency, third = ordered[:, 4] - ordered[:, 0], len(times) // 3
    return float(np.median(latency[-third:]) - np.median(latency[:third]))


def tally(texts: Sequence[str]) -> dict[str, int]:
    """How often each error occurred, most frequent first."""
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
