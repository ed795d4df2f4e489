"""Predictions of a model for every row of a split, in row order."""

from __future__ import annotations

from contextlib import closing

import torch

from lanner.data import Loader, Split
from lanner.models import RankingModel
from lanner.progress import progress
from lanner.train.metrics import Collector


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
