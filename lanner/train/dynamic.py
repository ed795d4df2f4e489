"""What became of the dynamic tables of a model, in numbers."""

from __future__ import annotations

from dataclasses import asdict

from lanner.embedding import EmbeddingCollection


def summary(embedding: EmbeddingCollection) -> dict[str, dict[str, int]]:
    """By table: its `rows` and `bytes` now, and its counters (see `lanner.embedding.dynamic.counters`).

    Empty without dynamic tables.
    """
    return {
        name: {"rows": len(table), "bytes": table.nbytes(), **asdict(table.counters)}
        for name, table in embedding.dynamic_tables.items()
    }
