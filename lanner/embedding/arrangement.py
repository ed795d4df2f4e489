"""Where each feature's vectors lie in the flat output of a collection, and the forms the output is given in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lanner.data.batch import Bags
from lanner.embedding.tables import FeatureConfig
from lanner.errors import ConfigError

Output = Literal["batch", "feature", "each"]


class Jagged(NamedTuple):
    """The vectors of a feature that is not pooled: those of sample s are values[offsets[s]:offsets[s + 1]]."""

    values: Tensor  # float32 [n, dim]
    offsets: Tensor  # int64 [B + 1]

    def padded(self, length: int, side: Literal["left", "right"] = "right") -> tuple[Tensor, Tensor]:
        """[B, length, dim], zeros on `side` of shorter sequences, and a bool mask [B, length] of the real vectors.

        Of a longer sequence the last `length` vectors are kept.
        """
        lengths = self.offsets.diff()[:, None]
        places = torch.arange(length, device=self.values.device)
        behind = places - (length - lengths) if side == "left" else places + (lengths - length).clamp(min=0)
        mask = (behind >= 0) & (behind < lengths)
        at = (self.offsets[:-1, None] + behind).masked_fill(~mask, self.values.shape[0])
        rows = torch.cat([self.values, self.values.new_zeros(1, self.values.shape[1])])
        return rows[at], mask


Vectors = Tensor | dict[str, Tensor | Jagged]


class Arrangement:
    """The output of a collection in one of three forms.

    "batch"    [B, sum of dims], features side by side
    "feature"  [F, B, dim], for features of one width
    "each"     a tensor [B, dim] for every feature by its name; a `Jagged` where it is not pooled
    """

    def __init__(self, features: Sequence[FeatureConfig], dims: Sequence[int], output: Output) -> None:
        """Raises ConfigError naming the feature that `output` cannot hold."""
        self.features, self.dims, self.output, self.width = tuple(features), tuple(dims), output, sum(dims)
        if output not in ("batch", "feature", "each"):
            raise ConfigError(f"output is {output!r}, expected batch, feature or each")
        for feature, dim in zip(features, dims, strict=True):
            if feature.pooling == "none" and output != "each":
                raise ConfigError(f"feature {feature.name!r}: with pooling 'none' the output must be 'each'")
            if output == "feature" and dim != dims[0]:
                raise ConfigError(
                    f"feature {feature.name!r}: width {dim}, but output 'feature' needs {dims[0]} for all"
                )

    @property
    def fixed(self) -> bool:
        """Whether places do not depend on the batch."""
        return self.output == "batch"

    def places(self, bags: Bags) -> list[tuple[int, int]]:
        """OUT and STRIDE of every feature (see `lanner.kernels.layout`)."""
        if self.output == "batch":
            return [(sum(self.dims[:index]), self.width) for index in range(len(self.dims))]
        starts, at = [], 0
        for size, dim in zip(self.sizes(bags), self.dims, strict=True):
            starts.append((at, dim))
            at += size
        return starts

    def sizes(self, bags: Bags) -> list[int]:
        """Floats of every feature's vectors."""
        batch = bags.batch_size
        return [
            dim * (_count(bags, feature.name) if feature.pooling == "none" else batch)
            for feature, dim in zip(self.features, self.dims, strict=True)
        ]

    def total(self, bags: Bags) -> int:
        """Floats of the flat output."""
        return bags.batch_size * self.width if self.output != "each" else sum(self.sizes(bags))

    def form(self, flat: Tensor, bags: Bags) -> Vectors:
        """The flat output as callers see it: views, through which gradients flow back."""
        batch = bags.batch_size
        if self.output == "batch":
            return flat.view(batch, self.width)
        if self.output == "feature":
            return flat.view(len(self.dims), batch, self.dims[0] if self.dims else 0)
        pieces = torch.split(flat, self.sizes(bags)) if self.dims else ()
        return {
            feature.name: _vectors(feature, piece.view(-1, dim), bags)
            for feature, piece, dim in zip(self.features, pieces, self.dims, strict=True)
        }


def _vectors(feature: FeatureConfig, values: Tensor, bags: Bags) -> Tensor | Jagged:
    if feature.pooling != "none":
        return values
    batch, at = bags.batch_size, bags.names.index(feature.name) * bags.batch_size
    if bags.offsets is None:
        return Jagged(values, torch.arange(batch + 1, device=values.device))
    return Jagged(values, bags.offsets[at : at + batch + 1] - bags.offsets[at])


def _count(bags: Bags, name: str) -> int:
    """Ids of a feature."""
    at = bags.names.index(name) * bags.batch_size
    if bags.offsets is None:
        return bags.batch_size
    return int(bags.offsets[at + bags.batch_size] - bags.offsets[at])
