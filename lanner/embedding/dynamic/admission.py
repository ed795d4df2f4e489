"""`Admission`: which keys without a row get one now."""

from __future__ import annotations

import hashlib

import numpy as np

from lanner.embedding.dynamic.config import DynamicConfig
from lanner.hashindex import HashIndex, capacity_for
from lanner.kernels import random


class Admission:
    """Counts the occurrences of keys that wait for a row, and draws.

    Counts are exact. They are kept in two indexes of at most half of `max_waiting` keys each: when the younger is
    full, the older is forgotten and the younger takes its place. A key is in the younger one since it last occurred.
    """

    def __init__(self, config: DynamicConfig, max_waiting: int, name: str, seed: int) -> None:
        self._min_count, self._probability = config.min_count, config.probability
        self._half = max_waiting // 2
        self._name, self._seed = name, seed
        self._young, self._old = HashIndex(), HashIndex()

    def admit(self, keys: np.ndarray, counts: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        """For distinct `keys`, which occurred `counts` times in `step`: who gets a row (bool), and occurrences so far.

        Those that are given one are to be taken off the list by `forget`.
        """
        admitted = np.ones(len(keys), np.bool_)
        if self._min_count > 1:
            counts = counts + self._waited(keys)
            admitted &= counts >= self._min_count
            self.wait(keys, counts)
        if self._probability < 1.0:
            admitted &= self._draw(keys, step) < self._probability
        return admitted, counts

    def forget(self, keys: np.ndarray) -> None:
        """These keys wait no longer."""
        if self._min_count > 1:
            self._young.erase(keys)
            self._old.erase(keys)

    def wait(self, keys: np.ndarray, counts: np.ndarray, recent: np.ndarray | None = None) -> None:
        """Let distinct `keys` wait with these counts; where `recent` is false, as if they had not occurred lately."""
        if recent is not None:
            late = np.asarray(recent, np.bool_)
            keys, counts, old, old_counts = keys[late], counts[late], keys[~late], counts[~late]
            room = max(self._half - len(self._old), 0)
            self._old.insert(old[:room], old_counts[:room])
        done = 0
        while done < len(keys):
            if len(self._young) >= self._half:
                self._old, self._young = self._young, HashIndex()
            until = done + self._half - len(self._young)
            self._young.insert(keys[done:until], counts[done:until])
            done = until

    def waiting(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Keys that wait and their counts, int64 [n] each, and which (bool [n]) are in the younger index."""
        (old_keys, old_counts), (keys, counts) = self._old.items(), self._young.items()
        past = self._young.find(old_keys) < 0
        recent = np.arange(past.sum() + len(keys)) >= past.sum()
        return np.concatenate([old_keys[past], keys]), np.concatenate([old_counts[past], counts]), recent

    def clear(self) -> None:
        """No key waits."""
        self._young, self._old = HashIndex(), HashIndex()

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return self._young.nbytes + self._old.nbytes if self._min_count > 1 else 0

    def _waited(self, keys: np.ndarray) -> np.ndarray:
        young, old = self._young.find(keys), self._old.find(keys)
        return np.where(young >= 0, young, np.maximum(old, 0))

    def _draw(self, keys: np.ndarray, step: int) -> np.ndarray:
        text = f"{self._seed}:{self._name}:admission:{step}"
        stream = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
        drawn = np.empty((len(keys), 1), np.float32)
        random.uniform_rows(drawn, keys, 0.0, 1.0, stream)
        return drawn[:, 0]


def bytes_for(config: DynamicConfig, max_waiting: int) -> int:
    """The most bytes that `max_waiting` waiting keys take: one full index, and one that grows."""
    return 40 * capacity_for(max_waiting // 2) if config.min_count > 1 else 0
