"""What to measure: the settings of one run, and the little language of levels (`1:32`)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lanner.errors import ConfigError


class Settings(BaseModel):
    """One run of the load generator; times are seconds, `latency_limit` is milliseconds.

    `concurrency` levels are a closed loop (so many requests always under way); `rates` an open loop (requests a
    second, whether answered or not), and exclude `concurrency`. `skew` is the exponent of the power law that ids are
    drawn from (0 = uniform). `low` and `high` bound the random integers of a model that has no schema, `ranges` those
    of single inputs; `shapes` gives inputs with open dimensions their shape without the batch.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    url: str
    protocol: Literal["grpc", "http"] = "grpc"
    version: str = ""
    batch: int = Field(default=1, ge=1)
    concurrency: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    poisson: bool = False
    duration: float = Field(default=5.0, gt=0)
    warmup: float = Field(default=1.0, ge=0)
    timeout: float = Field(default=30.0, gt=0)
    max_in_flight: int = Field(default=1000, ge=1)
    form: Literal["encoded", "raw"] = "encoded"
    data: str | None = None
    seed: int = Field(default=0, ge=0)
    skew: float = Field(default=0.0, ge=0)
    low: int = 0
    high: int = 100
    ranges: dict[str, tuple[int, int]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    latency_limit: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_loop(self) -> Settings:
        if bool(self.concurrency) == bool(self.rates):
            raise ValueError("give concurrency levels (closed loop) or rates (open loop), and not both")
        for low, high in ((self.low, self.high), *self.ranges.values()):
            if low >= high:
                raise ValueError(f"the range {low}:{high} is empty; expected LOW:HIGH with LOW < HIGH")
        return self

    @classmethod
    def parse(cls, values: dict[str, Any]) -> Settings:
        """Validate plain values; raises ConfigError naming each one at fault."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            problems = (
                f"{'.'.join(map(str, problem['loc'])) or 'perf'}: {problem['msg'].removeprefix('Value error, ')}"
                for problem in error.errors()
            )
            raise ConfigError("; ".join(problems)) from error

    @property
    def levels(self) -> tuple[float, ...]:
        """The values of the loop that was chosen, in order."""
        return self.rates or self.concurrency


def parse_levels(text: str, option: str) -> tuple[float, ...]:
    """Levels from `8`, `1,4,32`, `1:32` (doubling), `1:32:4` (steps of 4) or `1:32:x4` (times 4); ends included.

    Raises ConfigError naming `option` and the text.
    """
    wrong = ConfigError(f"{option} {text!r}: expected N, N,N,..., FIRST:LAST (doubling), FIRST:LAST:STEP or :xFACTOR")
    try:
        if ":" not in text:
            levels = tuple(float(part) for part in text.split(","))
        else:
            first, last, *rest = text.split(":")
            step = rest[0] if rest else "x2"
            if len(rest) > 1:
                raise wrong
            levels = _between(float(first), float(last), step)
    except ValueError as error:
        raise wrong from error
    if not levels or not all(0 < level < float("inf") for level in levels):
        raise wrong
    return levels


def _between(first: float, last: float, step: str) -> tuple[float, ...]:
    """The levels of a range; the last one is always measured, whether or not the steps meet it."""
    factor, plus = (float(step[1:]), 0.0) if step.startswith("x") else (1.0, float(step))
    if not 0 < first <= last or factor < 1 or plus < 0 or (factor == 1 and plus == 0):
        raise ValueError(step)
    levels = [first]
    while (following := levels[-1] * factor + plus) < last * (1 + 1e-9):
        levels.append(following)
    return tuple(levels) if levels[-1] >= last * (1 - 1e-9) else (*levels, last)
