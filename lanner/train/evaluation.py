"""Evaluating a checkpoint on a split of a dataset: what `lanner evaluate` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanner import storage
from lanner.data import Split
from lanner.embedding.device import device_of
from lanner.schema import Schema
from lanner.train import checkpoint
from lanner.train.inference import assess, require_scorable
from lanner.train.joining import joined


def evaluate_checkpoint(
    path: str,
    split_path: str,
    batch_size: int = 4096,
    predictions: str | None = None,
    quiet: bool = False,
    device: str = "cpu",
    embedding: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Metrics, verdict and "healthy" of a checkpoint (or a run's best one) over all rows of a split.

    The model runs on `device`, "cpu", "cuda" or "cuda:N"; `embedding` is as for `checkpoint.load_model`. A split
    without labels can be scored: the metrics then are None with the reason "no labels". `predictions` names a Parquet
    file to write: for each row in order its "row" number, the labels, and one "prediction" (several labels:
    "prediction_<label>"). Raises SchemaError naming the field in which the schemas of the checkpoint and of the
    dataset differ. The processes that `torchrun` started share the rows.
    """
    with joined() as processes:
        place, split = device_of(device), Split.open(split_path)
        path = checkpoint.resolve(path)
        _, schema = checkpoint.open_checkpoint(path)
        require_scorable(schema, split, path)
        model = checkpoint.restore(path, schema, embedding).to(place)
        result, verdict, collected = assess(model, split, batch_size, quiet)
        if predictions is not None:
            name, columns = predictions, collected.arrays()[:2]
            processes.first(lambda: write_predictions(name, schema, *columns))
    return {**result, "verdict": verdict, "healthy": verdict == "ok", "checkpoint": path}


def write_predictions(path: str, schema: Schema, predictions: NDArray[Any], labels: NDArray[Any]) -> None:
    """Publish a Parquet file of labels ([N, L], or [N, 0]: none) and predictions [N, L] in row order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"row": np.arange(len(labels))}
    columns |= {label.name: column for label, column in zip(schema.labels, labels.T, strict=False)}
    several = len(schema.labels) > 1
    for k, label in enumerate(schema.labels):
        columns[f"prediction_{label.name}" if several else "prediction"] = predictions[:, k]
    with storage.publish(path) as file:
        pq.write_table(pa.table(columns), file)
