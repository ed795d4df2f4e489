"""What a derived schema cannot know before the rows are read: sizes of tables, ids a row."""

from __future__ import annotations

import numpy as np

from lanner.data.formats.base import Block, Source
from lanner.data.formats.schemas import measured, unmeasured
from lanner.progress import progress
from lanner.schema import Schema


def measure(source: Source, schema: Schema, quiet: bool = False) -> Schema:
    """`schema` made whole by reading all rows of `source`, where it lacks the size of a table; else as it is."""
    unknown = unmeasured(schema)
    if not unknown:
        return schema
    found = _Measures(schema, unknown)
    for split, count in source.rows.items():
        with progress(f"measuring {split}", count, quiet) as bar:
            for block in source.blocks(split):
                found.add(block)
                bar.advance(block.rows)
    source.skipped = 0
    source.damaged.clear()
    return measured(schema, found.largest, found.hotness() if source.any_hotness else {})


class _Measures:
    def __init__(self, schema: Schema, unknown: tuple[str, ...]) -> None:
        self._schema, self._unknown = schema, unknown
        self.largest: dict[str, int] = {}
        self._lengths: dict[str, tuple[int, int]] = {}

    def add(self, block: Block) -> None:
        for feature, ids in zip(self._schema.sparse, block.ids, strict=True):
            if feature.table_name in self._unknown and len(ids.values):
                largest = max(self.largest.get(feature.table_name, -1), int(ids.values.max()))
                self.largest[feature.table_name] = largest
            if block.rows:
                lengths = np.ones(1, np.int64) if ids.offsets is None else np.diff(ids.offsets)
                low, high = self._lengths.get(feature.name, (int(lengths[0]), int(lengths[0])))
                self._lengths[feature.name] = min(low, int(lengths.min())), max(high, int(lengths.max()))

    def hotness(self) -> dict[str, int]:
        """Of the features with as many ids in every row, one or more."""
        return {name: low for name, (low, high) in self._lengths.items() if low == high > 0}
