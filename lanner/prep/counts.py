"""`Counts`: the value counts of all tables at once, within a budget of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import pyarrow as pa

from lanner.kernels import parallel
from lanner.kernels.hashing import bucket
from lanner.prep.chunk import Keys, RawChunk
from lanner.prep.counting import TableCounter
from lanner.prep.vocabulary import Vocabulary
from lanner.schema import Schema, VocabEncoder

NUMBER_BYTES, TEXT_BYTES = 64, 200
"""Bytes a distinct value takes while its table of counts grows (half empty, old and new copy)."""
_SEED = 1


class Counts:
    """Counts every vocabulary table; those that outgrow `memory` are put off and counted in several passes."""

    def __init__(self, schema: Schema, memory: int) -> None:
        self._memory = memory
        self._encoders = {f.table_name: f.encoder for f in schema.sparse if isinstance(f.encoder, VocabEncoder)}
        self._raws = {feature.table_name: feature.raw for feature in schema.sparse}
        self._columns = {
            table: [k for k, feature in enumerate(schema.sparse) if feature.table_name == table]
            for table in self._encoders
        }
        self._counters = {table: TableCounter(self._raws[table]) for table in self._encoders}

    def work(self, chunk: RawChunk) -> list[Callable[[], None]]:
        """What to run, in any order or at once, to count `chunk`."""
        largest_first = sorted(self._counters, key=self._size, reverse=True)  # so that threads end together
        return [partial(self._count, table, chunk) for table in largest_first]

    def drop_largest(self) -> None:
        """Put the largest tables off while all together are over the budget."""
        while sum(map(self._size, self._counters)) > self._memory:
            del self._counters[max(self._counters, key=self._size)]

    def vocabularies(self, read: Callable[[], Iterable[RawChunk]]) -> dict[str, Vocabulary]:
        """The vocabulary of each table; `read` gives the rows again for the tables that were put off."""
        found: dict[str, Vocabulary] = {}

        def number(table: str) -> None:
            found[table] = Vocabulary.fit(self._counters[table], self._encoders[table])

        parallel.run_all([partial(number, table) for table in self._counters])
        self._counters.clear()
        for table, encoder in self._encoders.items():
            if table not in found:
                found[table] = Vocabulary.fit(self._in_passes(table, encoder.min_count, read), encoder)
        return {table: found[table] for table in self._encoders}

    def _size(self, table: str) -> int:
        return len(self._counters[table]) * (TEXT_BYTES if self._raws[table] == "string" else NUMBER_BYTES)

    def _count(self, table: str, chunk: RawChunk) -> None:
        for column in self._columns[table]:
            self._counters[table].add(chunk.sparse[column])

    def _in_passes(self, table: str, min_count: int, read: Callable[[], Iterable[RawChunk]]) -> TableCounter:
        """The frequent values of a large table, from passes over an ever smaller share of its values each."""
        passes = 1
        while True:
            passes *= 4
            frequent = TableCounter(self._raws[table])
            for number in range(passes):
                counter = self._one_pass(table, number, passes, read)
                if counter is None:  # still too large: cut finer
                    break
                frequent.merge(counter.frequent(min_count))
            else:
                return frequent

    def _one_pass(
        self, table: str, number: int, passes: int, read: Callable[[], Iterable[RawChunk]]
    ) -> TableCounter | None:
        """Counts of the values that hash to `number`; None when they outgrow the budget."""
        self._counters = {table: TableCounter(self._raws[table])}
        counter = self._counters[table]
        for chunk in read():
            for column in self._columns[table]:
                counter.add(_share(chunk.sparse[column], number, passes))
            self.drop_largest()
            if not self._counters:
                return None
        self._counters.clear()
        return counter


def _share(keys: Keys, number: int, passes: int) -> Keys:
    """The present values of `keys` that hash to `number`, flat."""
    chosen = bucket(keys.keys, _SEED, passes) == number
    if keys.missing is not None:
        chosen &= ~keys.missing
    positions = np.flatnonzero(chosen)
    texts = None if keys.texts is None else keys.texts.take(pa.array(positions))
    return Keys(keys.keys[positions], texts=texts)
