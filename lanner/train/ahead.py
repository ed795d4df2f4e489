"""Batches on their way into training or evaluation, with the work on their embeddings begun."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from typing import Any

from lanner.data import Batch
from lanner.embedding import EmbeddingCollection


def prepared(
    batches: Generator[Batch, None, None], embedding: EmbeddingCollection, trips: deque[Future[Any]] | None = None
) -> Generator[Batch, None, None]:
    """`batches`, each prepared (see `EmbeddingCollection.prepare`) while up to `embedding.ahead` others are worked on.

    Ids that are sent to other processes are added to `trips`, for whoever ends before all batches and must wait for
    them. Closes `batches` at its end; what was prepared by then and not used holds no rows any more.
    """
    coming: deque[Batch] = deque()
    with closing(batches):
        for batch in batches:
            coming.append(_begun(batch, embedding, trips) if embedding.ahead else batch)
            if len(coming) > embedding.ahead:
                yield coming.popleft()
        while coming:
            yield coming.popleft()


def _begun(batch: Batch, embedding: EmbeddingCollection, trips: deque[Future[Any]] | None) -> Batch:
    bags = embedding.prepare(batch.bags)
    if bags.trip and trips is not None:
        trips.append(bags.trip)
    return replace(batch, bags=bags)
