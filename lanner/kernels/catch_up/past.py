"""`Past`: the steps that rows may have missed, as numbers a kernel can take."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

_NEGLIGIBLE = 1e-10  # of the first of the steps missed


class Past(NamedTuple):
    """Adam's steps number `since` + 1 and later.

    Attributes:
        since: the step before the first.
        rates: float32 [n], the learning rate of each over 1 - beta1^t.
        corrections: float32 [n], 1 / sqrt(1 - beta2^t).
        beta1, beta2, eps: Adam's.
    """

    since: int
    rates: Tensor
    corrections: Tensor
    beta1: float
    beta2: float
    eps: float

    @property
    def last(self) -> int:
        """The number of the last step."""
        return self.since + len(self.rates)

    @property
    def longest(self) -> int:
        """So many steps in a row a row moves on without gradients; what later ones would add is below float32.

        From step to step the first moment fades by beta1, the root of the second by no more than sqrt(beta2).
        """
        fading = self.beta1 / math.sqrt(self.beta2) if self.beta1 else 0.0
        return 0 if not fading else math.ceil(math.log(_NEGLIGIBLE) / math.log(fading))
