"""Did training work at all? A plain verdict, so that a useless model is never a silent success."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lanner.train import metrics

Verdict = Literal["ok", "no_better_than_chance", "constant", "diverged"]

EXPLANATIONS: dict[Verdict, str] = {
    "ok": "",
    "no_better_than_chance": "the predictions are no better than chance: the model learned nothing "
    "(try a lower or adaptive learning rate, and check labels and features)",
    "constant": "every prediction is the same: the model learned nothing but the mean, or its units died "
    "(try a lower learning rate)",
    "diverged": "training diverged: the loss or the weights are no longer finite (try a lower learning rate)",
}

_SEVERITY: tuple[Verdict, ...] = ("ok", "no_better_than_chance", "constant", "diverged")
_ERRORS_ABOVE_CHANCE = 3


def judge(predictions: NDArray[Any], labels: NDArray[Any]) -> Verdict:
    """Verdict over predictions and labels [N, L]; of several labels the worst counts.

    No better than chance: the AUC is less than 3 standard errors above 0.5 and the log-loss is not below that of the
    mean label. Labels of one class cannot tell, nor can no labels at all ([N, 0]).
    """
    if not np.isfinite(predictions).all():
        return "diverged"
    if not labels.size:
        return "ok"
    p, y = predictions.reshape(len(predictions), -1), labels.reshape(len(labels), -1)
    verdicts = [_judge(p[:, k], y[:, k]) for k in range(p.shape[1])]
    return max(verdicts, key=_SEVERITY.index, default="ok")


def _judge(p: NDArray[Any], y: NDArray[Any]) -> Verdict:
    area = metrics.auc(y, p)
    if area is None:
        return "ok"
    if p.min() == p.max():
        return "constant"
    chance = area < 0.5 + _ERRORS_ABOVE_CHANCE * metrics.auc_standard_error(y)
    return "no_better_than_chance" if chance and metrics.log_loss(y, p) >= metrics.base_log_loss(y) else "ok"
