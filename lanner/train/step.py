"""One training step."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lanner.data.batch import Batch, moved
from lanner.models import RankingModel
from lanner.schema import Schema
from lanner.train.precision import Precision
from lanner.train.processes import Processes

_TINY = torch.finfo(torch.float32).tiny


class Trained(NamedTuple):
    """What came of one step."""

    loss: float  # of the whole batch
    rows: int  # of the whole batch
    logits: Tensor  # [B, L] of this process's share of it


class TrainingStep:
    """Forward, loss, backward and every update for one batch.

    The loss is the weighted mean of the samples' cross-entropy, summed over the labels with their loss weights, plus
    `embedding_l2` times the mean over samples of the summed squares of the embeddings that went in. With several
    processes each has a share of the batch, which may be of 0 samples; sums and means are those of the whole.
    """

    def __init__(
        self,
        model: RankingModel,
        optimizer: torch.optim.Optimizer,
        precision: Precision,
        processes: Processes,
        embedding_l2: float = 0.0,
    ) -> None:
        self.model, self.optimizer, self.precision, self.embedding_l2 = model, optimizer, precision, embedding_l2
        self.processes, self._forward = processes, processes.averaging(model)
        self.rates = [group["lr"] for group in optimizer.param_groups]
        weights = label_weights(model.schema)
        self.label_weights = None if weights is None else weights.to(model.embedding.device)
        self._embedded: Tensor | None = None
        if embedding_l2:
            model.embedding.register_forward_hook(self._keep)

    def __call__(self, batch: Batch, factor: float) -> Trained:
        """Train on `batch` with every learning rate times `factor`.

        A loss that is not finite is returned and nothing is updated.
        """
        self.model.embedding.learning_rate_scale = factor
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        with self.processes.answering(), self.precision.autocast():
            logits = self._forward(batch)
        labels, weights = moved(batch.labels, logits.device), moved(batch.weight, logits.device)
        loss = cross_entropy(logits.float(), labels, weights, self.label_weights)
        weight = len(batch) if batch.weight is None else float(batch.weight.sum())
        total, weight, rows = self.processes.numbers(loss.item(), weight, len(batch)).sum(0).tolist()
        trained = Trained(total / max(weight, _TINY), int(rows), logits.detach())
        if not math.isfinite(trained.loss):
            return trained
        loss = loss / max(weight, _TINY)
        if self._embedded is not None:
            loss = loss + self.embedding_l2 * self._embedded.square().sum() / rows
            self._embedded = None
        with self.processes.answering():
            self.precision.step(loss * self.processes.world_size, self.optimizer)  # as gradients are averaged
        return trained

    def _keep(self, _module: Any, _inputs: Any, embedded: Tensor) -> None:
        self._embedded = embedded if embedded.requires_grad else None


def label_weights(schema: Schema) -> Tensor | None:
    """Loss weight of every label, [L]; None when all are 1."""
    weights = [label.loss_weight for label in schema.labels]
    return None if all(weight == 1 for weight in weights) else torch.tensor(weights)


def cross_entropy(logits: Tensor, labels: Tensor, weight: Tensor | None, label_weights: Tensor | None) -> Tensor:
    """Weighted sum over the samples of the labels' summed cross-entropy; logits and labels [B, L], weight [B]."""
    if weight is None and label_weights is None:
        return F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
    each = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    each = each.sum(1) if label_weights is None else each @ label_weights
    return each.sum() if weight is None else each @ weight
