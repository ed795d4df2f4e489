"""Drift of a column between two samples, and how well it predicts a label alone."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

COMMON = 50
"""Ids compared one by one; all others count as one."""
_PRIOR = 5.0
"""Rows of the mean label that the rate of a value starts from."""


class Drift(NamedTuple):
    """Population stability index Σ (p − q) ln(p / q), and whether that is more than chance and enough to matter.

    Below 0.1 nothing has changed, from `MATTERS` on much has: Siddiqi, Credit Risk Scorecards (2006).
    """

    psi: float
    matters: bool


MATTERS = 0.25


def drift_of_numbers(ours: np.ndarray, theirs: np.ndarray) -> Drift:
    """Over the tenths of `ours`."""
    edges = np.unique(np.quantile(ours, np.linspace(0.1, 0.9, 9), method="nearest"))
    counts = [np.bincount(np.searchsorted(edges, x, side="left"), minlength=len(edges) + 1) for x in (ours, theirs)]
    return _drift(*counts)


def drift_of_ids(ours: np.ndarray, theirs: np.ndarray) -> Drift:
    """Over the `COMMON` most frequent ids of `ours` and the rest."""
    ids, counts = np.unique(ours, return_counts=True)
    common = np.sort(ids[np.argsort(-counts, kind="stable")[:COMMON]])
    return _drift(_tally(common, ours), _tally(common, theirs))


def _tally(common: np.ndarray, ids: np.ndarray) -> np.ndarray:
    at = np.minimum(np.searchsorted(common, ids), len(common) - 1)
    return np.bincount(np.where(common[at] == ids, at, len(common)), minlength=len(common) + 1)


def _drift(ours: np.ndarray, theirs: np.ndarray) -> Drift:
    used = (ours + theirs) > 0
    ours, theirs = ours[used], theirs[used]
    p, q = ((x + 0.5) / (x.sum() + 0.5 * len(x)) for x in (ours, theirs))
    psi = float(((p - q) * np.log(p / q)).sum())
    # Of two samples of the same rows, psi · nm / (n + m) is about chi-squared, bins - 1 degrees free.
    free = len(ours) - 1
    size = ours.sum() * theirs.sum() / (ours.sum() + theirs.sum())
    return Drift(psi, bool(psi >= MATTERS and psi * size > free + 4 * math.sqrt(2 * free)))


def auc_of_numbers(values: np.ndarray, labels: np.ndarray) -> float | None:
    """AUC of the values as scores, or of their negatives where that is more; None when one class is absent."""
    found = _auc(values, labels == 1, labels == 0)
    return None if found is None else max(found, 1 - found)


def auc_of_ids(ids: np.ndarray, labels: np.ndarray) -> float | None:
    """AUC of the label rate of each id on the odd rows, as the even rows tell it; None when one class is absent."""
    _, code = np.unique(ids, return_inverse=True)
    code, even = code.reshape(-1), np.arange(len(ids)) % 2 == 0
    if not even.any():
        return None
    positive = labels == 1
    kinds = int(code.max()) + 1
    rows = np.bincount(code[even], minlength=kinds)
    hits = np.bincount(code[even & positive], minlength=kinds)
    rates = (hits + _PRIOR * positive[even].mean()) / (rows + _PRIOR)
    return _auc(rates[code], ~even & positive, ~even & ~positive)


def _auc(scores: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> float | None:
    """Share of pairs that are in order, ties half."""
    if not positive.any() or not negative.any():
        return None
    _, at = np.unique(scores, return_inverse=True)
    at = at.reshape(-1)
    good, bad = (np.bincount(at[rows], minlength=int(at.max()) + 1) for rows in (positive, negative))
    below = np.cumsum(bad) - bad
    return float((good * (below + bad / 2)).sum() / (good.sum() * bad.sum()))
