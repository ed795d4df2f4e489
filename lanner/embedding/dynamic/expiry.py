"""`Expiry`: since when a row must have been used to stay."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from lanner.embedding.dynamic.config import DynamicConfig

_MARKS = 64  # of the time to live: how exact it is in seconds


class Expiry:
    """Turns times to live into a step.

    Rows know the step of their last use, not the time; so the times of some steps are noted as they pass. A row goes
    when `ttl_seconds`, or up to 1/64 more, have passed since; time during which no step is taken counts. After a
    restart, rows used before count as used at the start.
    """

    def __init__(self, config: DynamicConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps, self._seconds, self._clock = config.ttl_steps, config.ttl_seconds, clock
        self._marks: deque[tuple[float, int]] = deque()
        self._past = 0  # the first step known to have begun no longer than the time to live ago

    @property
    def wanted(self) -> bool:
        """Whether rows expire at all."""
        return self._steps is not None or self._seconds is not None

    def oldest(self, step: int) -> int:
        """The step of last use before which rows are to go in `step`."""
        by_steps = 0 if self._steps is None else step - self._steps
        return max(by_steps, 0 if self._seconds is None else self._step_past(step, self._seconds))

    def _step_past(self, step: int, seconds: float) -> int:
        now = self._clock()
        if not self._marks or now - self._marks[-1][0] >= seconds / _MARKS:
            self._marks.append((now, step))
        while self._marks and now - self._marks[0][0] > seconds:
            self._past = self._marks.popleft()[1] + 1
        return self._past
