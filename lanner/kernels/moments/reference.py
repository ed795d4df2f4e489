"""The moments in exact rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction


def moments(values: Iterable[float]) -> tuple[int, Fraction, Fraction]:
    """Count, sum and sum of squares of the finite values."""
    finite = [Fraction(value) for value in values if math.isfinite(value)]
    return len(finite), sum(finite, Fraction()), sum((value * value for value in finite), Fraction())
