"""Predictions of a model for every row of a split, in row order."""

from __future__ import annotations

from contextlib import closing
from typing import Any, NamedTuple

import torch

from lanner.data import Loader, Split
from lanner.models import RankingModel
from lanner.progress import progress
from lanner.schema import Schema
from lanner.train import metrics
from lanner.train.metrics import Collector
from lanner.train.verdict import Verdict, judge

_METRICS = ("auc", "log_loss", "normalized_entropy", "calibration")


class Assessment(NamedTuple):
    """What a model is worth on a split."""

    metrics: dict[str, Any]
    verdict: Verdict
    collected: Collector


def predict(model: RankingModel, split: Split, batch_size: int, quiet: bool = False) -> Collector:
    """Probabilities (float32 [N, L]), labels and weights of all rows; the batch size changes nothing beyond 1e-6.

    The model runs in float32 and is left in the mode it was in.
    """
    collector, training = Collector(), model.training
    if not split.rows:
        return collector
    loader = Loader(split, batch_size)
    model.eval()
    try:
        with (
            torch.inference_mode(),
            closing(loader.epoch(0)) as batches,
            progress(f"evaluating {split.rows:,} rows", len(loader), quiet) as bar,
        ):
            for batch in batches:
                weight = None if batch.weight is None else batch.weight.numpy()
                collector.add(torch.sigmoid(model(batch).float()).numpy(), batch.labels.numpy(), weight)
                bar.advance()
    finally:
        model.train(training)
    return collector


def assess(model: RankingModel, split: Split, batch_size: int, quiet: bool = False) -> Assessment:
    """Predictions for all rows of `split`, their metrics and the verdict on them.

    Raises SchemaError unless `split` is of the model's schema. Where the model has dynamic tables, "unknown_keys" says
    how often each met a key that it has no row for.
    """
    require_scorable(model.schema, split)
    dynamic = model.embedding.dynamic_tables
    before = {name: table.counters.unknown for name, table in dynamic.items()}
    collected = predict(model, split, batch_size, quiet)
    found, verdict = _measure(model.schema, collected)
    if dynamic:
        found["unknown_keys"] = {name: table.counters.unknown - before[name] for name, table in dynamic.items()}
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
