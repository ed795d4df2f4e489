"""`SplitProfile`: what a report needs to know of the rows of a split, in bounded memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lanner.prep.report.samples import Sample, Timeline
from lanner.schema import Schema

SAMPLE_ROWS = 1 << 14
"""Most rows of a split that are kept: quantiles are right to about 0.5 % of the rows, and sorting takes little time."""
SAMPLE_CELLS = 1 << 21
"""Most cells of a split that are kept, so that thousands of columns do not take more memory than tens."""


class SplitProfile:
    """Of one split of `rows` rows: label sums by position, ranges of the numbers, samples of everything.

    `labels` and `dense` sample the same rows, and so do `ids` of features with one id a row; ids of lists are sampled
    value by value. `looked_at` counts the rows whose columns were seen.
    """

    def __init__(self, schema: Schema, rows: int) -> None:
        columns = len(schema.labels) + len(schema.dense) + len(schema.sparse)
        limit = min(SAMPLE_ROWS, max(SAMPLE_CELLS // max(columns, 1), 1))
        self.rows, self.looked_at = rows, 0
        self.timeline = Timeline(len(schema.labels))
        self.labels, self.dense = Sample(limit), Sample(limit)
        self.low = np.full(len(schema.dense), np.inf, np.float32)
        self.high = -self.low
        self.ids = [Sample(limit) for _ in schema.sparse]
        self._schema = schema

    def add(self, batch: pa.RecordBatch, columns: bool) -> None:
        """Take in the next rows as they are stored: their labels, and where `columns` is true everything else."""
        labels = np.zeros((batch.num_rows, len(self._schema.labels)), np.float32)
        for at, label in enumerate(self._schema.labels):
            labels[:, at] = _numbers(batch.column(label.name))
        self.timeline.add(labels)
        if not columns or not batch.num_rows:
            return
        self.looked_at += batch.num_rows
        self.labels.add(labels)
        if self._schema.dense:
            dense = self._dense(batch)
            self.dense.add(dense)
            self.low = np.minimum(self.low, dense.min(axis=0))
            self.high = np.maximum(self.high, dense.max(axis=0))
        for sample, feature in zip(self.ids, self._schema.sparse, strict=True):
            column = batch.column(feature.name)
            sample.add(_numbers(column if feature.one_hot else column.flatten()))

    def _dense(self, batch: pa.RecordBatch) -> np.ndarray:
        if "dense" in batch.schema.names:
            return _numbers(batch.column("dense").flatten()).reshape(batch.num_rows, -1)
        return np.stack([_numbers(batch.column(number.name)) for number in self._schema.dense], axis=1)


def _numbers(array: pa.Array) -> np.ndarray:
    values: np.ndarray = array.to_numpy(zero_copy_only=False)
    return values
