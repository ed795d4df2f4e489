"""Learning-rate factors by step."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from lanner.train import Schedule


def test_constant_by_default() -> None:
    assert [Schedule().factor(step) for step in (0, 1, 10**9)] == [1, 1, 1]


def test_nvidias_shape() -> None:
    schedule = Schedule(warmup_steps=8000, decay_start=48000, decay_steps=24000)
    assert schedule.factor(0) == pytest.approx(1 / 8000)
    assert schedule.factor(3999) == pytest.approx(0.5)
    assert schedule.factor(7999) == schedule.factor(8000) == schedule.factor(47999) == 1
    assert schedule.factor(60000) == pytest.approx(0.25)
    assert schedule.factor(64014) == pytest.approx(((72000 - 64014) / 24000) ** 2)  # the end of NVIDIA's one epoch
    assert schedule.factor(72000) == schedule.factor(10**9) == 0


def test_warmup_start_floor_and_power() -> None:
    schedule = Schedule(warmup_steps=10, warmup_start=0.5, decay_start=20, decay_steps=10, power=1, floor=0.1)
    assert schedule.factor(4) == pytest.approx(0.75)
    assert schedule.factor(25) == pytest.approx(0.55)
    assert schedule.factor(100) == pytest.approx(0.1)


def test_bad_values_are_refused() -> None:
    with pytest.raises(ValidationError, match="decay_steps"):
        Schedule(decay_steps=0)


def test_decay_over_the_last_share_of_a_run() -> None:
    schedule = Schedule(warmup_steps=5, decay_fraction=0.25).over(100, 180)
    assert schedule == Schedule(warmup_steps=5, decay_start=160, decay_steps=20)
    assert schedule.factor(159) == schedule.factor(160) == 1
    assert schedule.factor(179) == pytest.approx((1 / 20) ** 2)  # the last step still moves
    assert Schedule(decay_start=7).over(0, 80) == Schedule(decay_start=7)
    assert Schedule(decay_fraction=0.1).over(0, 1).factor(0) == 1
    with pytest.raises(ValidationError, match="give one of them"):
        Schedule(decay_fraction=0.5, decay_start=3)
