"""`DynamicTable`: one table whose rows have keys, made as keys occur and evicted as memory is needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lanner.embedding import initializers
from lanner.embedding.absence import Absence
from lanner.embedding.dynamic import footprint, transfer
from lanner.embedding.dynamic.admission import Admission
from lanner.embedding.dynamic.arrays import RowArrays
from lanner.embedding.dynamic.config import DynamicConfig
from lanner.embedding.dynamic.counters import Counters
from lanner.embedding.dynamic.deletions import Deletions
from lanner.embedding.dynamic.expiry import Expiry
from lanner.embedding.optimizers import Optimizer
from lanner.embedding.rounding import names_of
from lanner.embedding.steps import step_of
from lanner.embedding.store import Rows
from lanner.embedding.tables import TableConfig
from lanner.hashindex import HashIndex
from lanner.kernels import usage
from lanner.kernels.unique import unique
from lanner.kernels.update import Names, Step

_EVICTED = 32  # the share of all rows evicted at once: one in so many
_SWEPT = 1 << 16  # rows looked through for expired ones in one step, at least


class DynamicTable:
    """A `Store` of one table, whose ids are keys: any int64.

    Row 0 is the default row, which keys without a row read: those that evaluation does not know, and those that
    training refused. Rows in use begin at 1, and are used again when their keys have left; a row that is used again
    starts with fresh values, state and counts. First values depend on seed, table and key alone (uniform in ±0.01
    unless the table has an initializer).

    One thread trains; others may read `blocks`, `keys` and the like meanwhile. Whoever changes `weights` or `states`
    holds `lock`.

    Attributes:
        step: number of the step that the next training lookup belongs to. It must be the same for all lookups whose
            gradients go into one update; rows used in it are safe from eviction.
        counters: what became of the keys.
        limit: most rows.
    """

    keyed = True
    tracks_changes = True

    def __init__(self, table: TableConfig, optimizer: Optimizer, seed: int = 0) -> None:
        """Raises ConfigError when not even one row fits `max_bytes`."""
        self.table, self.config, self.seed = table, table.dynamic or DynamicConfig(), seed
        self.name, self.dim, self.own_optimizer = table.name, table.dim, table.optimizer
        self._names = names_of([table], {table.name: slice(0, 0)}, seed)
        self.lock = threading.RLock()
        self._counting = threading.Lock()  # many threads may look up at once, also while `lock` is held
        self._begin(table.optimizer or optimizer)

    def _begin(self, optimizer: Optimizer) -> None:
        """An empty table of which nothing is remembered."""
        self.step, self.counters, self._index = 1, Counters(), HashIndex()
        self._allocate(optimizer)
        self._admission = Admission(self.config, footprint.most_waiting(self.config), self.name, self.seed)
        self._expiry, self._swept_in, self._swept_to = Expiry(self.config), 0, 1
        self._deletions = Deletions(self.name, footprint.most_logged(self.limit))

    def _allocate(self, optimizer: Optimizer) -> None:
        """An empty table for this optimizer."""
        self.optimizer, self.limit = optimizer, footprint.most_rows(self.table, optimizer)
        self.absence = Absence.of(optimizer)
        self.arrays = RowArrays(self.dim, self.table.dtype, optimizer, self.limit + 1)
        self._free_from = 1  # where to look first for rows to use again
        self._default = self.arrays.extend(1)
        self._restore_default()

    def __len__(self) -> int:
        """Rows in use."""
        return len(self._index)

    @property
    def weights(self) -> Tensor:
        """[capacity, dim] of the table's format; it may be another tensor after rows were added."""
        return self.arrays.weights

    @property
    def states(self) -> dict[str, Tensor]:
        """The optimizer's state by name, [capacity, ...] each."""
        return self.arrays.states

    @property
    def names(self) -> Names:
        """What the random rounding of rows goes by; like `weights`, anew after rows were added."""
        return self._names._replace(keys=torch.from_numpy(self.arrays.keys))

    @property
    def spans(self) -> dict[str, slice]:
        """The table's rows, default row included: as many as there can ever be."""
        return {self.name: slice(0, self.limit + 1)}

    def rows_of(self, table: str, keys: np.ndarray, training: bool, times: np.ndarray | None = None) -> np.ndarray:
        """Rows, int64 [n], of int64 keys [n]; 0 for a key without one.

        In training, new keys get rows if they are admitted and there is room, and each use is noted; `times` int64
        [n] says how many occurrences each key stands for (None: one).
        """
        if not training:
            rows = self._index.find(keys)
            self._note_unknown(rows < 0, times)
            np.maximum(rows, 0, out=rows)
            return rows
        with self.lock:
            self._expire()
            rows = self._index.find(keys)
            if usage.stamp(self.arrays.usage, rows, self.step, times):
                self._welcome(keys, rows, times)
        return rows

    def numbers(self, count: int, learning_rate_scale: float, gradient_scale: float) -> Step:
        """The numbers of step number `count` (from 1) for the kernels."""
        return step_of(self.optimizer, count, learning_rate_scale, gradient_scale)

    def catch_up(self, rows: np.ndarray | None = None) -> None:
        """Let rows, or all, take the steps that they missed."""
        if self.absence is None:
            return
        with self.lock:
            if rows is not None:
                self.absence.catch_up(self, rows)
            else:
                for _ in self.absence.catch_up_all(self, self.arrays.top):
                    pass

    def continue_after(self, step: int) -> None:
        """Have all rows be as of after step number `step`."""
        if self.absence is not None:
            with self.lock:
                self.catch_up()
                self.absence.jump(self.states, self.arrays.top, step)

    def changed_rows(self, rows: np.ndarray, count: int) -> None:
        """Step number `count` is taken: put the default row back, and begin the next step."""
        with self.lock:
            if self.absence is not None:
                self.absence.mark(self.states, rows)
            self._restore_default()
            self.step = count + 1

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Use `optimizer` from now on, with fresh state; rows that now pass `max_bytes` are evicted."""
        with self.lock:
            if not len(self):
                self._allocate(optimizer)
                return
            self.optimizer, self.absence = optimizer, Absence.of(optimizer)
            self.limit = min(self.limit, footprint.most_rows(self.table, optimizer))
            self.arrays.set_states(optimizer.row_states(self.dim))
            self._make_room(0)

    def nbytes(self) -> int:
        """Bytes of memory held: weights and state of all rows so far, index, and what is kept beside them."""
        return self.arrays.nbytes() + self._index.nbytes + self._admission.nbytes + self._deletions.nbytes

    def keys(self) -> np.ndarray:
        """All keys, int64, in the order of their rows."""
        with self.lock:
            keys: np.ndarray = self.arrays.keys[self.arrays.in_use()]
            return keys

    def weight_of(self, keys: np.ndarray) -> np.ndarray:
        """Weights, float32 [n, dim], of int64 keys [n]; the default for those without a row."""
        with self.lock:
            rows = self._known(keys)
            self.catch_up(rows)
            return transfer.weights(self.arrays, rows)

    def gone(self, keys: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Which of `keys`, bool [n], do not have the rows [n] any more that were once found for them."""
        with self.lock:
            arrays = self.arrays
            gone: np.ndarray = (arrays.keys[rows] != keys) | (arrays.usage[rows, usage.COUNT] == 0)
            return gone & (rows > 0)

    def erase(self, keys: np.ndarray) -> int:
        """Take keys out; returns how many had rows. Not to be called between a forward and its update."""
        with self.lock:
            rows = self._index.find(np.unique(keys))
            return self._drop(rows[rows >= 0], "erased")

    def clear(self) -> None:
        """Be as just made: without rows, waiting keys and counts."""
        with self.lock:
            self._begin(self.optimizer)

    def reserve(self, count: int) -> None:
        """Have the index ready for so many keys, or as many as there may be, so that it need not grow on the way."""
        with self.lock:
            self._index.reserve(min(count, self.limit))

    def restored(self, table: str, step: int) -> None:
        """Rows are as of after step number `step`; what left before is not known."""
        with self.lock:
            self.continue_after(step)
            self.step = step + 1
            self._deletions = Deletions(self.name, footprint.most_logged(self.limit), step)

    def blocks(self, table: str, since: int | None = None) -> Iterator[Rows]:
        """All rows, or those changed after step `since`, in rising order of keys, some megabytes at a time.

        Changed are those used in training, or all where rows move on that do not occur.

        Beside the optimizer's state a row has "meta.used", the step of its last use, and "meta.count". Safe while
        another thread trains: `lock` is held for one block at a time, a row is given at most once, whole, and rows
        whose key leaves before their turn are not.
        """
        with self.lock:
            self.catch_up()
            rows = self.arrays.in_use()
            if since is not None and self.absence is None:
                rows = rows[self.arrays.usage[rows, usage.USED] > since]
            keys = self.arrays.keys[rows]
        order = np.argsort(keys)
        yield from transfer.blocks(self.arrays, self.lock, rows[order], keys[order])

    def place(self, table: str, rows: Rows) -> None:
        """Put rows in under their keys, whatever admission says; states not given stay, or are those of fresh rows.

        Without "meta.used" and "meta.count" they count as used in this step, new ones once. Raises DataError when
        shapes do not fit, a key comes twice, or there is no room and none to be made.
        """
        transfer.check(self.name, self.arrays, self.dim, rows)
        with self.lock:
            at = self._index.find(rows.keys)
            new = np.flatnonzero(at < 0)
            self.arrays.usage[at[at >= 0], usage.USED] = self.step  # not to be evicted for the others
            self._make_room(len(new))
            transfer.check_room(self.name, len(new), self._room())
            at[new] = self._claim(rows.keys[new], np.ones(len(new), np.int64))
            self.catch_up(at)  # states that stay are as of now
            transfer.write(self.arrays, at, rows, self.step)
            if self.absence is not None:
                self.absence.settle(self.states, at)

    def deleted_since(self, table: str, step: int) -> np.ndarray:
        """Keys, int64, that left after step `step` and have not come back.

        Raises DataError when that is no longer known: the log has a limit.
        """
        with self.lock:
            keys = self._deletions.since(step)
            return keys[self._index.find(keys) < 0]

    def waiting(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Keys without a row, how often they occurred, int64 [n] each, and which did so lately, bool [n]."""
        with self.lock:
            return self._admission.waiting()

    def wait(self, keys: np.ndarray, counts: np.ndarray, recent: np.ndarray | None = None) -> None:
        """Let these keys without a row wait, and no others: what `waiting` gave (by default, all occurred lately)."""
        with self.lock:
            self._admission = Admission(self.config, footprint.most_waiting(self.config), self.name, self.seed)
            self._admission.wait(keys, counts, recent)

    def end_pass(self) -> None:
        """A pass over the training data has ended: occurrences count anew for keys that have no row."""
        with self.lock:
            self._admission.clear()

    def _note_unknown(self, missing: np.ndarray, times: np.ndarray | None) -> None:
        count = np.count_nonzero(missing) if times is None else times[missing].sum()
        if count:
            with self._counting:
                self.counters.unknown += int(count)

    def _known(self, keys: np.ndarray) -> np.ndarray:
        """Rows of keys, 0 for those without."""
        rows = self._index.find(keys)
        np.maximum(rows, 0, out=rows)
        return rows

    def _welcome(self, keys: np.ndarray, rows: np.ndarray, times: np.ndarray | None) -> None:
        """Set the rows, so far -1, of unknown keys."""
        at = np.flatnonzero(rows < 0)
        distinct, inverse, _ = unique(keys[at], np.array([0, len(at)]))
        counts = np.bincount(inverse, None if times is None else times[at]).astype(np.int64)
        admitted, counts = self._admission.admit(distinct, counts, self.step)
        wanted = np.flatnonzero(admitted)
        self.counters.refused_admission += len(distinct) - len(wanted)
        self._make_room(len(wanted))
        inserted = wanted[: self._room()]
        self.counters.refused_full += len(wanted) - len(inserted)
        self._admission.forget(distinct[inserted])
        given = np.zeros(len(distinct), np.int64)
        given[inserted] = self._insert(distinct[inserted], counts[inserted])
        rows[at] = given[inverse]

    def _insert(self, keys: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Rows, with first values and fresh state, for distinct new keys, for which there is room."""
        rows = self._claim(keys, counts)
        for part in transfer.slices(len(rows), self.dim):
            values = np.empty((len(keys[part]), self.dim), np.float32)
            initializers.fill_keys(values, self.table.initializer, self.name, self.seed, keys[part])
            self.arrays.set_rows(rows[part], values)
        return rows

    def _claim(self, keys: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """`_insert`, with any values."""
        rows = self._free_rows(len(keys))
        self._index.insert(keys, rows)
        self.arrays.claim(rows, keys, self.step, np.minimum(counts, usage.MOST))
        self.arrays.reset_states(rows)
        self.counters.inserted += len(keys)
        return rows

    def _free_rows(self, count: int) -> np.ndarray:
        """Rows whose keys have left, then new ones."""
        top, between = self.arrays.top, min(count, self.arrays.top - 1 - len(self))
        rows = usage.free(self.arrays.usage, self._free_from, top, between)
        if len(rows) < between:
            rows = np.concatenate([rows, usage.free(self.arrays.usage, 1, self._free_from, between - len(rows))])
        if len(rows):
            self._free_from = int(rows[-1]) + 1
        return np.concatenate([rows, self.arrays.extend(count - len(rows))])

    def _room(self) -> int:
        return max(self.limit - len(self), 0)

    def _make_room(self, count: int) -> None:
        """Have room for `count` more rows, or as many as can be evicted; more than that at once, as it costs a pass."""
        missing = len(self) + count - self.limit
        if missing <= 0 or self.config.eviction == "none":
            return
        by: Literal["used", "count"] = "count" if self.config.eviction == "lfu" else "used"
        wanted = max(missing, self.limit // _EVICTED)
        arrays = self.arrays
        self._drop(usage.coldest(arrays.usage, arrays.keys, arrays.top, self.step, wanted, by), "evicted")

    def _expire(self) -> None:
        """Once a step, drop the expired rows of a part of the table; a small table has one part."""
        if not self._expiry.wanted or self._swept_in == self.step:
            return
        top = self.arrays.top
        part = max(_SWEPT, top // _EVICTED)
        first = self._swept_to if part < top and self._swept_to < top else 1
        last = min(first + part, top)
        self._drop(usage.unused(self.arrays.usage, first, last, self._expiry.oldest(self.step)), "expired")
        self._swept_in, self._swept_to = self.step, last

    def _drop(self, rows: np.ndarray, why: Literal["evicted", "expired", "erased"]) -> int:
        """Empty rows in use; how many."""
        keys = self.arrays.keys[rows]
        self._index.erase(keys)
        self.arrays.release(rows)
        self._deletions.add(self.step, keys)
        setattr(self.counters, why, getattr(self.counters, why) + len(rows))
        return len(rows)

    def _restore_default(self) -> None:
        """The default row as it was: refused keys of a batch let the optimizer at it."""
        self.arrays.set_rows(self._default, np.full((1, self.dim), self.config.default, np.float32))
        self.arrays.reset_states(self._default)

    def __getstate__(self) -> dict[str, Any]:
        made_of = {"table": self.table, "optimizer": self.optimizer, "seed": self.seed}
        return {
            "made_of": made_of,
            "absence": self.absence,
            "held": {"step": self.step, "counters": self.counters, "_deletions": self._deletions},
            "rows": list(self.blocks(self.name)),
            "waiting": self.waiting(),
        }

    def __setstate__(self, values: dict[str, Any]) -> None:
        self.__init__(**values["made_of"])  # type: ignore[misc]
        self.absence = values["absence"]
        for rows in values["rows"]:
            self.place(self.name, rows)
        self.wait(*values["waiting"])
        self.__dict__.update(values["held"])
