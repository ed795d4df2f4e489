"""Named conventions of preparing data: sets of ordinary choices, by the names people know them by.

| | numbers | ids | a missing value is | counted on | training rows |
|---|---|---|---|---|---|
| `lanner` | ln(1 + max(x, 0)) | from 1, by falling count; rarer than 15: 0 | 0, id 0 | training rows | in order |
| `nvidia-dlrm` | ln(x + 3), else 0 | the same | 0 after the logarithm, id 0 | all rows | shuffled |
| `facebook-dlrm` | ln(1 + max(x, 0)) | from 0, as first seen | 0, the category "0" | all rows | shuffled |
| `mlperf-dlrm` | ln(x - minimum + 2) | from 2, as first seen | 0, the category "0" | all rows | shuffled |

But for `lanner` the last day (file) is cut in halves: NVIDIA tests on the first (rounded down), Facebook too (rounded
up), MLPerf validates on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from lanner.errors import ConfigError
from lanner.prep.choices import Choices
from lanner.prep.split import SplitPlan

Recipe = Literal["lanner", "nvidia-dlrm", "facebook-dlrm", "mlperf-dlrm"]
Fit = Literal["train", "all"]


@dataclass(frozen=True, slots=True)
class Convention:
    """What a recipe chooses where the caller does not: see the parameters of `lanner.prep.prepare`."""

    choices: Choices = field(default_factory=Choices)
    split: SplitPlan = field(default_factory=SplitPlan)
    fit: Fit = "train"
    shuffle: bool = False


_CONVENTIONS = {
    "lanner": Convention(),
    "nvidia-dlrm": Convention(
        Choices(min_count=15, transform="log_shift3_missing0"), SplitPlan("day", "second", "first-floor"), "all", True
    ),
    "facebook-dlrm": Convention(
        Choices(min_count=1, order="seen", reserved=False, fill="0", transform="log1p_clip0"),
        SplitPlan("day", "second", "first"),
        "all",
        True,
    ),
    "mlperf-dlrm": Convention(
        Choices(
            min_count=1,
            unknown_buckets=1,
            order="seen",
            fill="0",
            max_rows=40_000_000,
            transform="log_minus_min_plus2",
        ),
        SplitPlan("day", "first", "second"),
        "all",
        True,
    ),
}


def convention(name: str) -> Convention:
    """The convention called `name`. Raises ConfigError listing those there are."""
    if name not in _CONVENTIONS:
        raise ConfigError(f"recipe {name!r}: expected one of {', '.join(get_args(Recipe))}")
    return _CONVENTIONS[name]
