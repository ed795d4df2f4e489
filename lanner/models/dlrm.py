"""DLRM: Deep Learning Recommendation Model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import Tensor

from lanner.embedding import EmbeddingCollection, EmbeddingSettings
from lanner.errors import ConfigError
from lanner.layers import MLP, CatInteraction, DotInteraction
from lanner.models.ranking import RankingModel, seeded
from lanner.schema import Schema


class DLRM(RankingModel):
    """Dense features through a bottom MLP, categorical ones through embeddings, their pairwise products into a top MLP.

    Naumov et al. 2019, "Deep Learning Recommendation Model for Personalization and Recommendation Systems"
    (arXiv:1906.00091)::

        bottom = MLP(dense)                        [B, dim], ReLU after every layer
        vectors = [bottom; embedding_1; ...]       [B, n, dim]
        logits = MLP([bottom, <v_i, v_j> for j < i])

    NVIDIA's recipe for Criteo Terabyte: dim 128, bottom 512-256-128, top 1024-1024-512-256-1, batch 65,536, SGD at 24
    for everything with 8,000 steps of linear warm-up, constant to step 48,000, then quadratic decay over 24,000.
    Facebook's: dim 64, bottom 512-256-64, top 512-512-256-1, batch 2,048, SGD 0.1.

    Args:
        schema: The fitted schema; its features in order are the model's inputs. Without dense features there is no
            bottom MLP; without sparse ones, no interaction.
        dim: Width of every embedding.
        bottom: Widths of the bottom layers. With the dot interaction a last layer of width `dim` is added when
            `bottom` does not end in one.
        top: Widths of the top layers; a final 1 stands for one output per label.
        interaction: "dot" as in the paper, or "cat" (all vectors side by side; taken as well where there is only one).
        dropout: Share of the top layers' activations zeroed while training. For small data.
        batch_norm: Normalise before each activation of both MLPs.
        seed: Of the initial weights, dense and embeddings.
        embedding: Settings of single tables; a mapping is read as a recipe's section `embedding`.
    """

    def __init__(
        self,
        schema: Schema,
        dim: int = 64,
        bottom: Sequence[int] = (512, 256, 64),
        top: Sequence[int] = (512, 256, 1),
        interaction: Literal["dot", "cat"] = "dot",
        dropout: float = 0.0,
        batch_norm: bool = False,
        seed: int = 0,
        embedding: EmbeddingSettings | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        _check(schema, dim, bottom, top, interaction, dropout)
        self.schema = schema
        self.embedding_settings = EmbeddingSettings.of(embedding)
        self.embedding = EmbeddingCollection.from_schema(schema, dim, seed=seed, settings=self.embedding_settings)
        features, dense = len(schema.sparse), len(schema.dense)
        dot = interaction == "dot" and features > 0 and features + (dense > 0) > 1  # one vector alone has no pairs
        if dot and dense and tuple(bottom)[-1:] != (dim,):
            bottom = (*bottom, dim)
        top = (*top[:-1], max(len(schema.labels), 1))
        with seeded(seed):
            self.bottom = MLP(dense, bottom, activate_last=True, batch_norm=batch_norm) if dense else None
            width = self.bottom.out_features if self.bottom else 0
            self.interaction = DotInteraction(features, dim, dense > 0) if dot else CatInteraction(features, dim, width)
            self.top = MLP(self.interaction.out_features, top, dropout=dropout, batch_norm=batch_norm)
        self.hyperparameters: dict[str, Any] = {
            "dim": dim,
            "bottom": list(bottom),
            "top": list(top),
            "interaction": interaction,
            "dropout": dropout,
            "batch_norm": batch_norm,
        }

    def head(self, dense: Tensor, embedded: Tensor) -> Tensor:
        """Dense features [B, D] and embeddings [B, F * dim] → logits [B, L]."""
        bottom = None if self.bottom is None else self.bottom(dense)
        logits: Tensor = self.top(self.interaction(bottom, embedded))
        return logits


def _check(
    schema: Schema, dim: int, bottom: Sequence[int], top: Sequence[int], interaction: str, dropout: float
) -> None:
    labels = max(len(schema.labels), 1)
    if not schema.dense and not schema.sparse:
        raise ConfigError("the schema has no features; a model needs dense or sparse ones")
    if interaction not in ("dot", "cat"):
        raise ConfigError(f"model.interaction: {interaction!r}; expected 'dot' or 'cat'")
    if not 0 <= dropout < 1:
        raise ConfigError(f"model.dropout: {dropout}; expected 0 <= dropout < 1")
    for name, sizes in (("bottom", bottom), ("top", top), ("dim", [dim])):
        if any(not isinstance(size, int) or size < 1 for size in sizes):
            raise ConfigError(f"model.{name}: {list(sizes)}; layer widths must be whole numbers of at least 1")
    if not top or top[-1] not in (1, labels):
        raise ConfigError(f"model.top: {list(top)} must end in 1 or in the number of labels, {labels}")
