"""`Batch` and `Bags`: what the loader yields, models read and the server builds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lanner.errors import DataError


@dataclass(frozen=True, slots=True)
class Bags:
    """All sparse features of a batch of B samples, for F features in schema order.

    `values` holds the ids (int64 or int32), feature-major: first the bags of feature 0 for samples 0..B-1, then
    those of feature 1. `offsets` (same dtype family, F*B + 1 entries) says where each bag starts; it is None when
    every feature is one-hot, and then `values` has exactly F*B entries. `weights` gives each id a float32 factor.
    """

    names: tuple[str, ...]
    values: Tensor
    offsets: Tensor | None = None
    weights: Tensor | None = None

    @property
    def batch_size(self) -> int:
        """B, the number of samples."""
        if not self.names:
            return 0
        bags = self.values.numel() if self.offsets is None else self.offsets.numel() - 1
        return bags // len(self.names)

    def validate(self) -> None:
        """Check lengths and offsets against the values.

        Raises DataError naming the feature at fault; costs one pass over the offsets.
        """
        values, offsets = self.values.numel(), self.offsets
        if self.weights is not None and self.weights.numel() != values:
            raise DataError(f"bags: {self.weights.numel()} weights for {values} ids")
        if offsets is None:
            if self.names and values % len(self.names):
                raise DataError(f"bags: {values} one-hot ids do not divide among {len(self.names)} features")
            return
        features = max(len(self.names), 1)
        if (offsets.numel() - 1) % features:
            raise DataError(f"bags: {offsets.numel()} offsets; expected F*B + 1 for F = {features} features")
        bags = max((offsets.numel() - 1) // features, 1)
        if offsets.numel() and int(offsets[0]) != 0:
            raise DataError(f"bags of feature {self._name(0)!r}: offsets start at {int(offsets[0])}, expected 0")
        falling = torch.nonzero(offsets[1:] < offsets[:-1])
        if falling.numel():
            at = int(falling[0])
            name = self._name(at // bags)
            raise DataError(
                f"bags of feature {name!r}: sample {at % bags} ends at {int(offsets[at + 1])}, "
                f"before its start {int(offsets[at])}"
            )
        if int(offsets[-1]) != values:
            raise DataError(
                f"bags of feature {self._name(features - 1)!r}: offsets end at {int(offsets[-1])}, "
                f"but there are {values} ids"
            )

    def _name(self, index: int) -> str:
        return self.names[index] if index < len(self.names) else "?"

    @staticmethod
    def from_lengths(names: tuple[str, ...], values: Tensor, lengths: Tensor, weights: Tensor | None = None) -> Bags:
        """Bags from per-bag lengths (F*B, feature-major) instead of offsets; raises DataError like `validate`."""
        if names and lengths.numel() % len(names):
            raise DataError(f"bags: {lengths.numel()} lengths do not divide among {len(names)} features")
        negative = torch.nonzero(lengths < 0)
        if negative.numel():
            at, batch = int(negative[0]), lengths.numel() // len(names)
            raise DataError(
                f"bags of feature {names[at // batch]!r}: sample {at % batch} has length {int(lengths[at])}"
            )
        offsets = torch.zeros(lengths.numel() + 1, dtype=torch.int64)
        torch.cumsum(lengths, 0, out=offsets[1:])
        bags = Bags(names, values, offsets, weights)
        bags.validate()
        return bags


@dataclass(frozen=True, slots=True)
class Batch:
    """B samples: dense [B, D] float32, sparse `bags`, labels [B, L] float32; weight and group [B] where there are."""

    dense: Tensor
    bags: Bags
    labels: Tensor
    weight: Tensor | None = None
    group: Tensor | None = None

    def __len__(self) -> int:
        return self.dense.shape[0]
