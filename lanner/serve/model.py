"""One version of a model, loaded: schema, encoder, tables and dense graph."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import numpy as np

from lanner import manifest, storage
from lanner.data.batch import Bags
from lanner.embedding import persistence
from lanner.errors import DataError
from lanner.export.graph import GRAPH, DenseGraph
from lanner.export.tables import load_tables
from lanner.prep.encoder import Encoder
from lanner.schema import Schema, VocabEncoder
from lanner.serve.batcher import Timing
from lanner.serve.inputs import Inputs
from lanner.serve.rows import Rows, merge


class ServedModel:
    """Loads the version in `directory`, which must be finished (have a manifest) and whole.

    Raises DataError or SchemaError naming the file at fault.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        written = manifest.read(directory, "repository")
        manifest.verify(directory, written, checksums=persistence.needs_checksum)
        self.schema = Schema.load(storage.join(directory, "schema.yaml"))
        if self.schema.fingerprint() != written.fingerprint:
            raise DataError(f"{directory}: schema.yaml does not belong to this version (its fingerprint differs)")
        self.encoder = Encoder.load(directory) if _complete(self.schema) else None
        self.embedding = load_tables(storage.join(directory, persistence.FOLDER), self.schema)
        rows: dict[str, int | str] = {table.name: table.rows for table in self.embedding.tables}
        self.graph = DenseGraph(storage.join(directory, GRAPH))
        self.outputs = self.graph.outputs
        self.inputs = Inputs(self.schema, rows, self.encoder)
        self._ids = {name: 2**63 - 1 if count == "dynamic" else int(count) for name, count in rows.items()}

    def predict(self, rows: Rows) -> np.ndarray:
        """Scores float32 [rows, L] of encoded rows."""
        return self.run([rows])[0][0]

    def warm_up(self, max_rows: int) -> None:
        """Compile kernels and run batches of several sizes, so that no request pays for it."""
        rng = np.random.default_rng(0)
        if self.encoder and not self.inputs.required:
            self.encoder.encode({name: [None] for name in self.inputs.raw})
        for count in (1, 2, 16, 64, 256, 1024):
            if count <= max_rows:
                self.run([self.sample(count, rng)])
        for table in self.embedding.dynamic_tables.values():
            table.counters.unknown = 0  # of requests alone

    def unknown_keys(self) -> dict[str, int]:
        """By dynamic table, how often a request had a key without a row, which reads as the default."""
        return {name: table.counters.unknown for name, table in self.embedding.dynamic_tables.items()}

    def sample(self, count: int, rng: np.random.Generator) -> Rows:
        """Random valid rows."""
        dense = rng.random((count, len(self.schema.dense)), dtype=np.float32)
        one_hot = [self._ids[f.table_name] for f in self.schema.sparse if f.one_hot]
        ids = rng.integers(0, one_hot, (count, len(one_hot))) if one_hot else np.empty((count, 0), dtype=np.int64)
        bags: list[tuple[np.ndarray, np.ndarray]] = []
        for feature in self.schema.sparse:
            if not feature.one_hot:
                lengths = np.full(count, feature.hotness or min(feature.max_hotness or 2, 2))
                bags.append((rng.integers(0, self._ids[feature.table_name], lengths.sum()), lengths))
        return Rows(count, dense, ids, bags)

    def run(self, requests: Sequence[Rows]) -> tuple[list[np.ndarray], Timing]:
        """Scores of each of the requests, merged into one batch; see `lanner.serve.batcher.Runs`."""
        begun = time.perf_counter_ns()
        dense, bags = merge(requests, self.schema)
        merged = time.perf_counter_ns()
        scores = self.score(dense, bags)
        scored = time.perf_counter_ns()
        parts = np.split(scores, np.cumsum([rows.count for rows in requests])[:-1])
        return parts, Timing(merged - begun, scored - merged, time.perf_counter_ns() - scored)

    def score(self, dense: np.ndarray, bags: Bags) -> np.ndarray:
        """Scores float32 [B, L] of a batch; DataError naming the feature where the bags do not fit together."""
        embedded = self.embedding(bags).numpy() if bags.names else np.empty((len(dense), 0), np.float32)
        return self.graph(dense, embedded)


def _complete(schema: Schema) -> bool:
    """True when the vocabularies are there; a model trained without any takes encoded requests only."""
    return all(
        schema.table(feature.table_name).vocabulary
        for feature in schema.sparse
        if isinstance(feature.encoder, VocabEncoder)
    )
