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
from lanner.prep.first_rows import rows_of
from lanner.prep.folding import folded
from lanner.prep.vocabulary import Vocabulary
from lanner.schema import Schema, VocabEncoder

NUMBER_BYTES, TEXT_BYTES = 64, 200
"""Bytes a distinct value takes while its table of counts grows (half empty, old and new copy)."""
SEEN_BYTES = 80
"""The same for the row it was seen in first, where that is kept."""
_SEED = 1


class Counts:
    """Counts every vocabulary table; those that outgrow `memory` are put off and counted in several passes.

    `first` is the number of the first row, where that matters (see `VocabEncoder.order`).
    """

    def __init__(self, schema: Schema, memory: int, first: int = 0) -> None:
        self._memory = memory
        self._encoders = {f.table_name: f.encoder for f in schema.sparse if isinstance(f.encoder, VocabEncoder)}
        self._raws = {feature.table_name: feature.raw for feature in schema.sparse}
        self._columns = {
            table: [k for k, f in enumerate(schema.sparse) if f.table_name == table and f.history is None]
            for table in self._encoders
        }
        self._features = schema.sparse
        self._rows = first
        self._counters = {table: self._counter(table) for table in self._encoders}

    def work(self, chunk: RawChunk) -> list[Callable[[], None]]:
        """What to run, in any order or at once, to count `chunk`."""
        largest_first = sorted(self._counters, key=self._size, reverse=True)  # so that threads end together
        first, self._rows = self._rows, self._rows + chunk.rows
        return [partial(self._count, table, chunk, first) for table in largest_first]

    @property
    def too_large(self) -> bool:
        """Whether all tables together are over the budget."""
        return sum(map(self._size, self._counters)) > self._memory

    def take(self) -> dict[str, TableCounter]:
        """The counts of each table so far; from here on they begin anew."""
        taken, self._counters = self._counters, {table: self._counter(table) for table in self._encoders}
        return taken

    def drop_largest(self) -> None:
        """Put the largest tables off while all together are over the budget."""
        while self.too_large:
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
        size = TEXT_BYTES if self._raws[table] == "string" else NUMBER_BYTES
        return len(self._counters[table]) * (size + (SEEN_BYTES if self._by_row(table) else 0))

    def _by_row(self, table: str) -> bool:
        return self._encoders[table].order == "seen"

    def _counter(self, table: str) -> TableCounter:
        return TableCounter(self._raws[table], self._by_row(table))

    def _count(self, table: str, chunk: RawChunk, first: int) -> None:
        for column in self._columns[table]:
            keys = folded(self._features[column], chunk.sparse[column])
            self._counters[table].add(keys, rows_of(keys, first) if self._by_row(table) else None)

    def _in_passes(self, table: str, min_count: int, read: Callable[[], Iterable[RawChunk]]) -> TableCounter:
        """The frequent values of a large table, from passes over an ever smaller share of its values each."""
        passes = 1
        while True:
            passes *= 4
            frequent = self._counter(table)
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
        self._counters = {table: self._counter(table)}
        counter, first = self._counters[table], 0
        for chunk in read():
            for column in self._columns[table]:
                keys = folded(self._features[column], chunk.sparse[column])
                positions = _share(keys, number, passes)
                texts = None if keys.texts is None else keys.texts.take(pa.array(positions))
                rows = rows_of(keys, first)[positions] if self._by_row(table) else None
                counter.add(Keys(keys.keys[positions], texts=texts), rows)
            first += chunk.rows
            self.drop_largest()
            if not self._counters:
                return None
        self._counters.clear()
        return counter


def _share(keys: Keys, number: int, passes: int) -> np.ndarray:
    """Positions (int64) of the present values of `keys` that hash to `number`."""
    chosen = bucket(keys.keys, _SEED, passes) == number
    if keys.missing is not None:
        chosen &= ~keys.missing
    return np.flatnonzero(chosen)
