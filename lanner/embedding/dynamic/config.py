"""`DynamicConfig`: which keys a dynamic table lets in, and which it lets go."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from lanner.errors import ConfigError


@dataclass(frozen=True)
class DynamicConfig:
    """How a dynamic table grows and shrinks. The default keeps every key it trains on, for ever.

    Attributes:
        min_count: occurrences in one pass over the training data that give a key its row (1: the first does), as in
            a vocabulary. All occurrences of a batch count before any is looked up. `EmbeddingCollection.end_pass`
            ends a pass, which the trainer calls; where nobody does, it lasts for ever.
        probability: chance that a step in which a key without row occurs (often enough) gives it one; drawn from
            seed, key and step.
        max_waiting: how many keys that have no row yet are counted at once for `min_count`. Beyond it, those that
            did not occur for longest are forgotten: a count is kept at least until `max_waiting / 2` other waiting
            keys have occurred.
        max_rows: most rows at once.
        max_bytes: most bytes of weights, states, index and what else is kept by row or key.
        eviction: which rows make room at the limits: those not used for longest ("lru"), those used least often,
            older use first among equals ("lfu"), or none ("none": new keys are refused). Rows used in the current
            step never go.
        ttl_steps: rows not used for more than so many steps go.
        ttl_seconds: rows not used for longer go.
        default: every value of the row that keys without a row read.
    """

    min_count: int = 1
    probability: float = 1.0
    max_waiting: int = 1 << 22
    max_rows: int | None = None
    max_bytes: int | None = None
    eviction: Literal["none", "lru", "lfu"] = "lru"
    ttl_steps: int | None = None
    ttl_seconds: float | None = None
    default: float = 0.0

    def __post_init__(self) -> None:
        for name, low in (("min_count", 1), ("max_waiting", 2), ("max_rows", 1), ("max_bytes", 1), ("ttl_steps", 1)):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= low):
                raise ConfigError(f"dynamic table: {name} is {value!r}, expected a whole number of at least {low}")
        if self.eviction not in ("none", "lru", "lfu"):
            raise ConfigError(f"dynamic table: eviction is {self.eviction!r}, expected none, lru or lfu")
        _check("probability", self.probability, 0.0, 1.0)
        _check("default", self.default, -math.inf, math.inf)
        if self.ttl_seconds is not None:
            _check("ttl_seconds", self.ttl_seconds, 0.0, math.inf)


def _check(name: str, value: object, low: float, high: float) -> None:
    if not (isinstance(value, (int, float)) and low <= value <= high and math.isfinite(value)):
        raise ConfigError(f"dynamic table: {name} is {value!r}, expected a finite number from {low:g} to {high:g}")
