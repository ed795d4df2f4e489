"""The best possible scores of synthetic logs: of the true probabilities against the labels drawn from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXACT_UP_TO = 20_000_000
_BINS = 1 << 22
_RANGE = 16.0


@dataclass(frozen=True)
class BestScores:
    """Area under the ROC curve (None when only one class was drawn) and mean log-loss (None without rows)."""

    auc: float | None
    log_loss: float | None


class Best:
    """Collects logits and labels of `rows` rows; above EXACT_UP_TO rows only counts of logits in narrow bins."""

    def __init__(self, rows: int) -> None:
        self.rows = 0
        self.clicks = 0
        self._loss = 0.0
        self._exact: list[tuple[NDArray[np.float64], NDArray[np.uint8]]] | None = [] if rows <= EXACT_UP_TO else None
        self._counts = np.zeros((2, 1 if rows <= EXACT_UP_TO else _BINS), np.int64)

    def add(self, logits: NDArray[np.float64], labels: NDArray[np.uint8]) -> None:
        """Take in some rows: logits [N], labels 0 or 1 [N]."""
        self.rows += labels.size
        self.clicks += int(labels.sum())
        self._loss += float(np.logaddexp(0.0, np.where(labels, -logits, logits)).sum())
        if self._exact is not None:
            self._exact.append((logits, labels))
            return
        bins = ((logits + _RANGE) * (_BINS / (2 * _RANGE))).clip(0, _BINS - 1).astype(np.int64)
        for label in (0, 1):
            self._counts[label] += np.bincount(bins[labels == label], minlength=_BINS)

    def scores(self) -> BestScores:
        """The scores of all rows taken in."""
        return BestScores(self._auc(), self._loss / self.rows if self.rows else None)

    def _auc(self) -> float | None:
        if not 0 < self.clicks < self.rows:
            return None
        zeros, ones = self._tied_counts()
        below = np.cumsum(zeros) - zeros
        return float((ones * (below + 0.5 * zeros)).sum() / (self.clicks * (self.rows - self.clicks)))

    def _tied_counts(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Negatives and positives at every distinct logit (or in every bin), by rising logit."""
        if self._exact is None:
            return self._counts[0].astype(np.float64), self._counts[1].astype(np.float64)
        logits = np.concatenate([some for some, _ in self._exact])
        labels = np.concatenate([some for _, some in self._exact])
        values, place = np.unique(logits, return_inverse=True)
        ones = np.bincount(place, weights=labels, minlength=values.size)
        return np.bincount(place, weights=1 - labels, minlength=values.size), ones
