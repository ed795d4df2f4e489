"""Predictions of a model for every row of a split, in row order."""

from __future__ import annotations

from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import torch

from lanner.data import Loader, Split
from lanner.models import RankingModel
from lanner.progress import progress
from lanner.schema import Schema
from lanner.train import metrics
from lanner.train.ahead import prepared
from lanner.train.metrics import Collector
from lanner.train.processes import Processes
from lanner.train.tables import dynamic
from lanner.train.verdict import Verdict, judge

_METRICS = ("auc", "log_loss", "normalized_entropy", "calibration")


class Assessment(NamedTuple):
    """What a model is worth on a split; `collected` is of the first process alone, as in `predict`."""

    metrics: dict[str, Any]
    verdict: Verdict
    collected: Collector


def predict(model: RankingModel, split: Split, batch_size: int, quiet: bool = False) -> Collector:
    """Probabilities (float32 [N, L]), labels and weights of all rows; the batch size changes nothing beyond 1e-6.

    The model runs in float32 and is left in the mode it was in. With several processes each looks at its share of the
    rows, and the first one gets the predictions for all, in row order; the others get none.
    """
    collector, training, processes = Collector(), model.training, Processes(model.embedding.wire)
    if not split.rows:
        return collector
    loader = Loader(split, batch_size, rank=processes.rank, world_size=processes.world_size)
    quiet = quiet or not processes.is_first
    model.eval()
    try:
        with (
            torch.inference_mode(),
            closing(prepared(loader.epoch(0), model.embedding)) as batches,
            progress(f"evaluating {split.rows:,} rows", len(loader), quiet) as bar,
        ):
            for batch in batches:
                weight = None if batch.weight is None else batch.weight.numpy()
                collector.add(torch.sigmoid(model(batch).float()).cpu().numpy(), batch.labels.numpy(), weight)
                bar.advance()
    finally:
        model.train(training)
    return _in_order(collector, loader, processes)


def _in_order(own: Collector, loader: Loader, processes: Processes) -> Collector:
    """What all processes collected, in row order, in the first one; nothing in the others."""
    if processes.world_size == 1:
        return own
    columns, whole = processes.rows(*own.arrays()), Collector()
    if processes.is_first:
        shares = (loader.share(batch, rank) for rank in range(loader.world_size) for batch in range(len(loader)))
        order = np.argsort(np.concatenate([np.arange(*share) for share in shares]))
        predictions, labels, weight = (None if column is None else column[order] for column in columns)
        assert predictions is not None and labels is not None
        whole.add(predictions, labels, weight)
    return whole


def assess(model: RankingModel, split: Split, batch_size: int, quiet: bool = False) -> Assessment:
    """Predictions for all rows of `split`, their metrics and the verdict on them.

    Raises SchemaError unless `split` is of the model's schema. Where the model has dynamic tables, "unknown_keys" says
    how often each met a key that it has no row for. With several processes all get the same metrics and verdict.
    """
    require_scorable(model.schema, split)
    before = dynamic(model.embedding)
    collected = predict(model, split, batch_size, quiet)
    found, verdict = Processes(model.embedding.wire).told(lambda: _measure(model.schema, collected))
    if after := dynamic(model.embedding):
        found["unknown_keys"] = {name: after[name]["unknown"] - before[name]["unknown"] for name in after}
    return Assessment(found, verdict, collected)


def require_scorable(schema: Schema, split: Split, model: str = "the model") -> None:
    """Raise SchemaError naming the differing field unless `split` is of `schema`; its labels may all be absent."""
    if not split.schema.labels:
        schema = schema.model_copy(update={"labels": ()})
    schema.require_same(split.schema, model, split.name)


def _measure(schema: Schema, collected: Collector) -> tuple[dict[str, Any], Verdict]:
    """Metrics of predictions and the verdict on them; without labels every metric is None, for "no labels"."""
    predictions, labels, weight = collected.arrays()
    verdict = judge(predictions, labels)
    if len(labels) and not labels.shape[1]:
        undefined = {key: value for m in _METRICS for key, value in ((m, None), (f"{m}_reason", "no labels"))}
        return {"rows": len(labels), **undefined}, verdict
    return metrics.evaluate(labels, predictions, [label.name for label in schema.labels], weight), verdict
