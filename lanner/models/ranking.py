"""What the trainer, the exporter and the server need of a model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lanner.data.batch import Batch, moved
from lanner.embedding import EmbeddingCollection, EmbeddingSettings
from lanner.schema import Schema


class RankingModel(nn.Module):
    """A model of embeddings and a dense `head`; the two are apart so that a server can look rows up elsewhere."""

    schema: Schema
    embedding: EmbeddingCollection
    hyperparameters: dict[str, Any]
    """JSON-able; `lanner.models.build(name, schema, embedding_settings, **hyperparameters)` makes the same model."""
    embedding_settings: EmbeddingSettings

    @abstractmethod
    def head(self, dense: Tensor, embedded: Tensor) -> Tensor:
        """Dense features [B, D] and embeddings [B, sum of widths] → logits [B, L]."""

    def forward(self, batch: Batch) -> Tensor:
        """Logits [B, L] of a batch, on the model's device; the batch may be on the host."""
        dense = moved(batch.dense, self.embedding.device)
        if not self.schema.sparse:  # bags without features do not know the batch size
            return self.head(dense, dense.new_empty(len(batch), 0))
        return self.head(dense, self.embedding(batch.bags))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw initial weights from `seed` alone, and leave PyTorch's global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
