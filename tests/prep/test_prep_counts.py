"""Counting within a budget gives the vocabularies of counting without one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from lanner.prep.chunk import Keys, RawChunk
from lanner.prep.counts import NUMBER_BYTES, TEXT_BYTES, Counts
from lanner.prep.keys import scalar_keys
from lanner.prep.vocabulary import Vocabulary
from lanner.schema import Schema, Sparse, VocabEncoder

SCHEMA = Schema(
    sparse=tuple(
        Sparse(name=name, raw=raw, table=table, encoder=VocabEncoder(min_count=count))  # type: ignore[arg-type]
        for name, raw, table, count in (
            ("a", "int", "large", 2), ("b", "int", "large", 2), ("c", "int", "small", 1), ("d", "string", "text", 3)
        )
    )
)  # fmt: skip


def chunks() -> Iterator[RawChunk]:
    random = np.random.default_rng(5)
    for _ in range(4):
        large = [Keys(random.integers(-900, 900, 500), random.random(500) < 0.1) for _ in range(2)]
        texts = pa.array([f"word {number}" for number in random.integers(0, 200, 500)])
        found = scalar_keys("string", texts, "d", True)
        text = Keys(found.keys, texts=found.texts)
        yield RawChunk(
            500, np.empty((500, 0)), np.empty((500, 0)), [*large, Keys(random.integers(0, 9, 500)), text]
        )  # fmt: skip


def vocabularies(memory: int) -> tuple[dict[str, Vocabulary], int]:
    """The result, and how often the rows were read."""
    reads = 0

    def read() -> Iterator[RawChunk]:
        nonlocal reads
        reads += 1
        return chunks()

    counts = Counts(SCHEMA, memory)
    for chunk in read():
        for call in counts.work(chunk):
            call()
        counts.drop_largest()
    return counts.vocabularies(read), reads


@pytest.mark.parametrize(
    ("memory", "reads"),
    [(2**30, 1), (500 * NUMBER_BYTES + 210 * TEXT_BYTES, 5), (150 * TEXT_BYTES, 9), (100 * NUMBER_BYTES, None)],
)
def test_small_budgets_cost_passes_and_change_nothing(memory: int, reads: int | None) -> None:
    found, seen = vocabularies(memory)
    assert reads is None or seen == reads
    expected, _ = vocabularies(2**40)
    for table, vocabulary in expected.items():
        np.testing.assert_array_equal(found[table].keys, vocabulary.keys)
        np.testing.assert_array_equal(found[table].counts, vocabulary.counts)
    assert found["text"].texts.to_pylist() == expected["text"].texts.to_pylist()
