"""Learning-rate schedules: one factor a step, multiplied into every learning rate."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Schedule(BaseModel):
    """Linear warm-up, a constant stretch, polynomial decay: the shape of NVIDIA's DLRM recipe.

    Steps count from 0. The factor rises to 1 over the first `warmup_steps` (the first step takes 1/warmup_steps of
    the rate, or more where `warmup_start` lifts the start), stays there until step `decay_start`, then falls as
    ``((end - step) / decay_steps) ** power`` to `floor`, where it remains. Without `decay_start` it never falls.
    NVIDIA's Criteo Terabyte run: warmup_steps 8000, decay_start 48000, decay_steps 24000, power 2.

    `decay_fraction` says the same without counting steps: the decay takes that share of the run's steps, the last
    ones. Small last steps leave the mean prediction near the mean label, which a constant rate does not.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    warmup_steps: int = Field(default=0, ge=0)
    warmup_start: float = Field(default=0.0, ge=0, le=1)
    decay_start: int | None = Field(default=None, ge=0)
    decay_steps: int = Field(default=1, ge=1)
    decay_fraction: float | None = Field(default=None, gt=0, le=1)
    power: float = Field(default=2.0, gt=0)
    floor: float = Field(default=0.0, ge=0, le=1)

    @model_validator(mode="after")
    def _one_decay(self) -> Schedule:
        if self.decay_fraction is not None and self.decay_start is not None:
            raise ValueError("decay_start and decay_fraction both say when the decay begins; give one of them")
        return self

    def over(self, first: int, last: int) -> Schedule:
        """The schedule of a run of the steps first..last-1: `decay_fraction` turned into steps."""
        if self.decay_fraction is None:
            return self
        steps = max(1, round((last - first) * self.decay_fraction))
        return self.model_copy(update={"decay_fraction": None, "decay_start": last - steps, "decay_steps": steps})

    def factor(self, step: int) -> float:
        """The factor of step `step`; a `decay_fraction` has none before `over`."""
        if step < self.warmup_steps:
            return self.warmup_start + (1 - self.warmup_start) * (step + 1) / self.warmup_steps
        if self.decay_start is None or step < self.decay_start:
            return 1.0
        left = max(self.decay_start + self.decay_steps - step, 0) / self.decay_steps
        return float(self.floor + (1 - self.floor) * left**self.power)
