"""`Holds`: a thread that brings the rows of coming batches into memory, and the `Hold` that keeps a batch's rows there.

All bookkeeping of the cache is done by this one thread, in the order in which it was asked for, so there is nothing to
lock. Rows are held from when they are brought in until the hold is released, or dropped. A batch that does not fit
beside the held ones waits: until one is released, or until it is needed. Then those that were brought in ahead and that
nobody works on yet make room. So what comes of a batch does not depend on how fast the thread is.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from typing import Literal, TypeVar

import numpy as np

from lanner.embedding.backed.cache import NoRoomError, RowCache
from lanner.errors import ConfigError

T = TypeVar("T")
_NONE = np.empty(0, np.int64)


class Hold:
    """The rows of one look-up. Drop it, or call `release`, when they are not needed any more."""

    def __init__(self, holds: Holds, rows: np.ndarray, training: bool) -> None:
        self.keys, self.training = rows, training
        self.state: Literal["coming", "waiting", "here", "in use", "failed", "released"] = "coming"
        self.wanted = False
        self.failure: Exception | None = None
        self.slots = self.guests = _NONE
        self._holds = holds

    def rows(self) -> np.ndarray:
        """Where the rows are: numbers of rows in memory, int64 [n], valid until the hold is released.

        Waits for them. Raises what went wrong on the way.
        """
        return self._holds.take(self)

    def release(self) -> None:
        """Let the rows go."""
        self._holds.release(self)

    def __del__(self) -> None:
        self._holds.dropped(self)


def release(holds: Mapping[str, Hold]) -> None:
    """Let the rows of several tables go."""
    for hold in holds.values():
        hold.release()


class Holds:
    """The thread, and all holds on the rows of `cache`."""

    def __init__(self, table: str, cache: RowCache) -> None:
        self._table, self._cache = table, cache
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lanner-rows")
        self._news = Condition()  # of the states of holds
        self._here: weakref.WeakSet[Hold] = weakref.WeakSet()  # brought in, but not in use yet
        self._waiting: deque[weakref.ref[Hold]] = deque()
        self._left: deque[tuple[np.ndarray, np.ndarray]] = deque()  # slots and guests to let go

    def begin(self, rows: np.ndarray, training: bool) -> Hold:
        """A hold on `rows` int64 [n], repeated ones included, which are on their way from now on.

        With `training` they count as used; without, those brought in leave again with the hold.
        """
        hold = Hold(self, rows, training)
        self._thread.submit(self._serve, hold)
        return hold

    def run(self, work: Callable[[], T]) -> T:
        """What `work` returns on the thread, where it may use the cache."""
        return self._thread.submit(work).result()

    def held(self) -> int:
        """How many rows are held."""

        def count() -> int:
            self._let_go()
            return self._cache.held

        return self.run(count)

    def take(self, hold: Hold) -> np.ndarray:
        """See `Hold.rows`."""
        with self._news:
            hold.wanted = True
            if self._resume(hold):
                self._thread.submit(self._serve, hold)
            self._news.wait_for(lambda: hold.state != "coming")
            if hold.failure is not None:
                raise hold.failure
            if hold.state == "released":
                raise ConfigError(f"table {self._table!r}: the rows of a batch are asked for after its step")
            hold.state = "in use"
            self._here.discard(hold)
            return hold.slots

    def release(self, hold: Hold) -> None:
        """See `Hold.release`."""
        self.dropped(hold)
        self._thread.submit(self._tidy)

    def dropped(self, hold: Hold) -> None:
        """Note that a hold has ended; the next work on the thread will let its rows go.

        The garbage collector may call this anywhere, so it takes no lock.
        """
        slots, guests = hold.slots, hold.guests
        hold.slots = hold.guests = _NONE
        hold.state = "released"
        if len(slots):
            self._left.append((slots, guests))

    def _tidy(self) -> None:
        """Let go what was released, and bring in what waited for that."""
        self._let_go()
        for _ in range(len(self._waiting)):
            hold = self._waiting.popleft()()
            if hold is not None and self._resume(hold):
                self._serve(hold)

    def _resume(self, hold: Hold) -> bool:
        """Whether a hold was waiting; it is coming now."""
        with self._news:
            waited = hold.state == "waiting"
            if waited:
                hold.state = "coming"
        return waited

    def _let_go(self) -> None:
        while self._left:
            self._cache.let_go(*self._left.popleft())

    def _serve(self, hold: Hold) -> None:
        """Bring the rows of a hold in."""
        self._let_go()
        try:
            slots, brought = self._bring(hold)
        except NoRoomError:
            return
        except Exception as error:
            self._tell(hold, "failed", error)
            return
        hold.slots, hold.guests = slots, _NONE if hold.training else brought
        self._tell(hold, "here")

    def _bring(self, hold: Hold) -> tuple[np.ndarray, np.ndarray]:
        try:
            return self._cache.bring(hold.keys, hold.training)
        except NoRoomError:
            with self._news:
                if not hold.wanted:
                    hold.state = "waiting"
                    self._waiting.append(weakref.ref(hold))
                    raise
        self._send_back()
        try:
            return self._cache.bring(hold.keys, hold.training)
        except NoRoomError as error:
            wanted, held = len(np.unique(hold.keys)), self._cache.slots - error.left
            raise ConfigError(
                f"table {self._table!r}: a batch needs {wanted:,} rows in memory at once, where there is room for "
                f"{self._cache.slots:,}, of which {held:,} are held for it or for steps not taken yet; "
                "give more memory, or use smaller batches"
            ) from error

    def _send_back(self) -> None:
        """Let go what was brought in ahead; it has to come again."""
        with self._news:
            for hold in list(self._here):
                self._left.append((hold.slots, hold.guests))
                hold.slots = hold.guests = _NONE
                hold.state = "waiting"
                self._waiting.append(weakref.ref(hold))
            self._here.clear()
        self._let_go()

    def _tell(self, hold: Hold, state: Literal["here", "failed"], failure: Exception | None = None) -> None:
        with self._news:
            hold.state, hold.failure = state, failure
            if state == "here":
                self._here.add(hold)
            self._news.notify_all()
