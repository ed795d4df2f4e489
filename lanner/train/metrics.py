"""Metrics over a whole evaluation set: exact, weighted where there are weights, independent of the batch size.

A soft label y counts as y of a positive and 1 - y of a negative.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

CLIP = 1e-7
"""Log-loss takes a probability no nearer to 0 or 1 than this: a float32 sigmoid reaches both ends."""

SOFT_NOTE = "labels between 0 and 1 count in AUC as y of a positive and 1 - y of a negative"
"""What `summary` says where any label is soft."""

_LOWER_IS_BETTER = ("log_loss", "normalized_entropy")


def auc(labels: ArrayLike, scores: ArrayLike, weight: ArrayLike | None = None) -> float | None:
    """Area under the ROC curve by ranks, float64; equal scores count half. None when one class is absent."""
    positive, negative = _classes(labels, weight)
    values = np.asarray(scores).reshape(-1)
    total = positive.sum() * negative.sum()
    if total == 0 or np.isnan(values).any():
        return None
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    starts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]])) if len(ranked) else np.zeros(0, int)
    tied_positive = np.add.reduceat(positive[order], starts)
    tied_negative = np.add.reduceat(negative[order], starts)
    below = np.cumsum(tied_negative) - tied_negative
    return float((tied_positive * (below + tied_negative / 2)).sum() / total)


def auc_standard_error(labels: ArrayLike) -> float:
    """Standard error of the AUC of scores that know nothing; infinite when one class is absent."""
    positive, negative = (part.sum() for part in _classes(labels, None))
    return math.sqrt((positive + negative + 1) / (12 * positive * negative)) if positive * negative else math.inf


def log_loss(labels: ArrayLike, probabilities: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean cross-entropy in nats; NaN when a probability is NaN."""
    positive, negative = _classes(labels, weight)
    p = np.clip(np.asarray(probabilities, dtype=np.float64).reshape(-1), CLIP, 1 - CLIP)
    return float(-(positive * np.log(p) + negative * np.log1p(-p)).sum() / (positive.sum() + negative.sum()))


def base_log_loss(labels: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Log-loss of predicting the mean label everywhere (0 when one class is absent)."""
    positive, negative = (part.sum() for part in _classes(labels, weight))
    rate = positive / (positive + negative)
    return float(-sum(share * math.log(share) for share in (rate, 1 - rate) if share > 0))


def summary(labels: ArrayLike, probabilities: ArrayLike, weight: ArrayLike | None = None) -> dict[str, Any]:
    """All metrics of one binary label.

    "auc", "log_loss", "normalized_entropy" (log-loss divided by that of the mean label), "calibration" (mean
    prediction divided by mean label) and "rows". What is undefined or not finite is None, and "<metric>_reason" says
    why. Where labels lie between 0 and 1, "auc_note" says how AUC counts them.
    """
    y, p = np.asarray(labels, dtype=np.float64).reshape(-1), np.asarray(probabilities).reshape(-1)
    if len(y) != len(p):
        raise ValueError(f"{len(p)} predictions for {len(y)} labels")
    result: dict[str, Any] = {"rows": len(y)}
    if ((y > 0) & (y < 1)).any():
        result["auc_note"] = SOFT_NOTE
    reason = _nothing_to_measure(y, p, weight)
    if reason is not None:
        return _undefined(result, ("auc", "log_loss", "normalized_entropy", "calibration"), reason)
    total = None if weight is None else np.asarray(weight, dtype=np.float64)
    mean_label, base = float(np.average(y, weights=total)), base_log_loss(y, weight)
    result["log_loss"] = log_loss(y, p, weight)
    area = auc(y, p, weight)
    if area is None:
        only = "0" if mean_label == 0 else "1"
        return _undefined(result, ("auc", "normalized_entropy"), f"every label is {only}") | _calibration(
            p, mean_label, total
        )
    result |= {"auc": area, "normalized_entropy": result["log_loss"] / base}
    return result | _calibration(p, mean_label, total)


def evaluate(
    labels: NDArray[Any], probabilities: NDArray[Any], names: Sequence[str], weight: ArrayLike | None = None
) -> dict[str, Any]:
    """`summary` of labels and predictions [N, L].

    With several labels the top level holds each metric's mean over the labels where it is defined, and "labels" the
    metrics of each by name.
    """
    y, p = labels.reshape(-1, len(names)), probabilities.reshape(-1, len(names))
    each = {name: summary(y[:, k], p[:, k], weight) for k, name in enumerate(names)}
    if len(each) == 1:
        return next(iter(each.values()))
    result: dict[str, Any] = {"rows": len(y)}
    if any("auc_note" in found for found in each.values()):
        result["auc_note"] = SOFT_NOTE
    for metric in ("auc", "log_loss", "normalized_entropy", "calibration"):
        values = [found[metric] for found in each.values() if found.get(metric) is not None]
        result[metric] = float(np.mean(values)) if values else None
        if not values:
            result[f"{metric}_reason"] = "undefined for every label"
    return result | {"labels": each}


def improves(metric: str, value: float, best: float | None) -> bool:
    """True when `value` beats `best` (None: nothing yet); log-loss and entropy fall, the others rise."""
    if best is None:
        return True
    return value < best if lower_is_better(metric) else value > best


def lower_is_better(metric: str) -> bool:
    return metric in _LOWER_IS_BETTER


@dataclass
class Collector:
    """Predictions and labels of a set, gathered batch by batch; with `limit`, those of so many of the last batches."""

    limit: int | None = None

    def __post_init__(self) -> None:
        self._parts: deque[tuple[NDArray[Any], ...]] = deque(maxlen=self.limit)

    def add(self, predictions: NDArray[Any], labels: NDArray[Any], weight: NDArray[Any] | None = None) -> None:
        """Keep a batch: [B, L], [B, L] and [B] or nothing. The arrays are kept, not copied."""
        self._parts.append((predictions, labels) if weight is None else (predictions, labels, weight))

    def arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
        """Predictions, labels and weights of everything kept."""
        if not self._parts:
            return np.zeros((0, 1), np.float32), np.zeros((0, 1), np.float32), None
        columns = [np.concatenate(column) for column in zip(*self._parts, strict=True)]
        return columns[0], columns[1], columns[2] if len(columns) > 2 else None


def _nothing_to_measure(y: Floats, p: NDArray[Any], weight: ArrayLike | None) -> str | None:
    """Why no metric can be computed; None when some can."""
    if not len(y):
        return "there are no rows"
    if weight is not None and not np.sum(weight) > 0:
        return "the weights of all rows are 0"
    bad = int(np.count_nonzero(~np.isfinite(p)))
    return f"{bad} of {len(p)} predictions are not finite" if bad else None


def _classes(labels: ArrayLike, weight: ArrayLike | None) -> tuple[Floats, Floats]:
    """How much of a positive and of a negative each row is."""
    y = np.asarray(labels, dtype=np.float64).reshape(-1)
    w = np.ones_like(y) if weight is None else np.asarray(weight, dtype=np.float64).reshape(-1)
    return y * w, (1 - y) * w


def _undefined(result: dict[str, Any], names: Sequence[str], reason: str) -> dict[str, Any]:
    for name in names:
        result |= {name: None, f"{name}_reason": reason}
    return result


def _calibration(p: NDArray[Any], mean_label: float, weight: Floats | None) -> dict[str, Any]:
    if mean_label == 0:
        return {"calibration": None, "calibration_reason": "every label is 0"}
    return {"calibration": float(np.average(p.astype(np.float64), weights=weight)) / mean_label}
