"""`Batch` and `Bags`: what the loader yields, models read and the server builds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import overload

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

    def to(self, device: torch.device) -> Bags:
        """The same on `device`; see `moved`."""
        return Bags(self.names, moved(self.values, device), moved(self.offsets, device), moved(self.weights, device))

    def validate(self) -> None:
        """Check types, lengths and offsets against the values.

        Raises DataError naming the feature at fault; costs one pass over the offsets.
        """
        _check_integers("ids", self.values)
        values = self.values.numel()
        if self.weights is not None and self.weights.numel() != values:
            raise DataError(f"bags: {self.weights.numel()} weights for {values} ids")
        if not self.names:
            if values:
                raise DataError(f"bags: {values} ids belong to no feature")
        elif self.offsets is not None:
            self._check_offsets(self.offsets, values)
        elif values % len(self.names):
            raise DataError(f"bags: {values} one-hot ids do not divide among {_counted(self.names)}")

    def _check_offsets(self, offsets: Tensor, values: int) -> None:
        _check_integers("offsets", offsets)
        features = len(self.names)
        if (offsets.numel() - 1) % features or not offsets.numel():
            raise DataError(f"bags: {offsets.numel()} offsets; expected F*B + 1 for F = {_counted(self.names)}")
        if int(offsets[0]) != 0:
            raise DataError(f"bags of feature {self.names[0]!r}: offsets start at {int(offsets[0])}, expected 0")
        falling = torch.nonzero(offsets[1:] < offsets[:-1])
        if falling.numel():
            at = int(falling[0])
            feature, sample = divmod(at, self.batch_size)
            raise DataError(
                f"bags of feature {self.names[feature]!r}: sample {sample} ends at {int(offsets[at + 1])}, "
                f"before its start {int(offsets[at])}"
            )
        if int(offsets[-1]) != values:
            raise DataError(
                f"bags of feature {self.names[-1]!r}: offsets end at {int(offsets[-1])}, but there are {values} ids"
            )

    @staticmethod
    def from_lengths(names: tuple[str, ...], values: Tensor, lengths: Tensor, weights: Tensor | None = None) -> Bags:
        """Bags from per-bag lengths (F*B, feature-major) instead of offsets; raises DataError like `validate`."""
        _check_integers("lengths", lengths)
        if lengths.numel() % max(len(names), 1):
            raise DataError(f"bags: {lengths.numel()} lengths do not divide among {_counted(names)}")
        negative = torch.nonzero(lengths < 0)
        if names and negative.numel():
            feature, sample = divmod(int(negative[0]), lengths.numel() // len(names))
            raise DataError(
                f"bags of feature {names[feature]!r}: sample {sample} has length {int(lengths[negative[0]])}"
            )
        offsets = torch.zeros(lengths.numel() + 1, dtype=torch.int64, device=lengths.device)
        torch.cumsum(lengths, 0, dtype=torch.int64, out=offsets[1:])
        bags = Bags(names, values, offsets, weights)
        bags.validate()
        return bags


def _counted(names: tuple[str, ...]) -> str:
    return f"{len(names)} features ({', '.join(names)})"


def _check_integers(what: str, tensor: Tensor) -> None:
    if tensor.dim() != 1 or tensor.dtype not in (torch.int64, torch.int32):
        kind = str(tensor.dtype).removeprefix("torch.")
        raise DataError(
            f"bags: {what} of type {kind} and shape {list(tensor.shape)}; expected a flat int64 or int32 array"
        )


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


@overload
def moved(tensor: Tensor, device: torch.device) -> Tensor: ...


@overload
def moved(tensor: None, device: torch.device) -> None: ...


def moved(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    """`tensor` on `device`, itself where it is there. To a CUDA device it is copied while this process goes on."""
    if tensor is None or tensor.device == device:
        return tensor
    if device.type != "cuda":
        return tensor.to(device)
    return (tensor.pin_memory() if tensor.device.type == "cpu" else tensor).to(device, non_blocking=True)
