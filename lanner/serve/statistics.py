"""Counters of one model version, in the shape of the protocol's statistics extension."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from lanner.serve.failure import REASONS

STAGES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")


@dataclass(slots=True)
class Durations:
    """Nanoseconds one request spent in each stage; `total` runs from its arrival to its answer."""

    total: int
    queue: int
    compute_input: int
    compute_infer: int
    compute_output: int


class Statistics:
    """Thread-safe counters; one call changes everything that belongs to one execution, so that no reader ever sees
    stages with different counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._ns: Counter[str] = Counter()
        self._batches: dict[int, list[int]] = {}
        self._failures: Counter[str] = Counter()
        self._inferences = self._executions = self._last = 0

    def executed(self, rows: int, requests: list[Durations]) -> None:
        """Count one execution of `rows` rows that answered `requests`."""
        now = time.time_ns() // 1_000_000
        with self._lock:
            self._last, self._executions, self._inferences = now, self._executions + 1, self._inferences + rows
            for durations in requests:
                self._ns["success"] += durations.total
                for stage in ("queue", "compute_input", "compute_infer", "compute_output"):
                    self._ns[stage] += getattr(durations, stage)
            for stage in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
                self._counts[stage] += len(requests)
            batch = self._batches.setdefault(rows, [0, 0, 0, 0])
            first = requests[0]
            for place, ns in enumerate((1, first.compute_input, first.compute_infer, first.compute_output)):
                batch[place] += ns

    def failed(self, reason: str, ns: int) -> None:
        """Count a request answered with an error after `ns`."""
        with self._lock:
            self._counts["fail"] += 1
            self._ns["fail"] += ns
            self._failures[reason] += 1

    def failures(self) -> dict[str, int]:
        """Failed requests by reason."""
        with self._lock:
            return {reason: self._failures[reason] for reason in REASONS}

    def snapshot(self, name: str, version: str) -> dict[str, Any]:
        """One entry of the statistics answer."""
        with self._lock:
            return {
                "name": name,
                "version": version,
                "last_inference": self._last,
                "inference_count": self._inferences,
                "execution_count": self._executions,
                "inference_stats": {s: {"count": self._counts[s], "ns": self._ns[s]} for s in STAGES},
                "batch_stats": [_batch(rows, *self._batches[rows]) for rows in sorted(self._batches)],
            }


def _batch(rows: int, count: int, compute_input: int, compute_infer: int, compute_output: int) -> dict[str, Any]:
    return {
        "batch_size": rows,
        "compute_input": {"count": count, "ns": compute_input},
        "compute_infer": {"count": count, "ns": compute_infer},
        "compute_output": {"count": count, "ns": compute_output},
    }
