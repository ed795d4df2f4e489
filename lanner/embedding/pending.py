"""Gradients whose updates are deferred, and merging them into one batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lanner.data.batch import Bags
from lanner.errors import DataError


@dataclass(frozen=True)
class Pending:
    """One backward's worth: the bags of its forward, the gradient [B, width], and the winners of max pooling."""

    bags: Bags
    gradient: Tensor
    winners: Tensor | None


def merge(parts: list[Pending]) -> Pending:
    """All parts as if their batches had been one. Raises DataError when their features differ."""
    if len(parts) == 1:
        return parts[0]
    for part in parts:
        if part.bags.names != parts[0].bags.names:
            raise DataError(
                f"deferred updates: bags of features {part.bags.names} cannot join those of {parts[0].bags.names}"
            )
    winners = [part.winners for part in parts if part.winners is not None]
    return Pending(
        _merge_bags([part.bags for part in parts]),
        torch.cat([part.gradient for part in parts]),
        torch.cat(winners) if winners else None,
    )


def _merge_bags(parts: list[Bags]) -> Bags:
    names, features = parts[0].names, len(parts[0].names)
    lengths = torch.cat([_lengths(bags) for bags in parts], dim=1)
    weights = None
    if any(bags.weights is not None for bags in parts):
        filled = [torch.ones(b.values.numel()) if b.weights is None else b.weights for b in parts]
        weights = _interleave(filled, parts, features)
    values = _interleave([bags.values for bags in parts], parts, features)
    if all(bags.offsets is None for bags in parts):
        return Bags(names, values, None, weights)
    return Bags.from_lengths(names, values, lengths.reshape(-1), weights)


def _lengths(bags: Bags) -> Tensor:
    """Ids of each bag [F, B]."""
    if bags.offsets is None:
        return torch.ones(len(bags.names), bags.batch_size, dtype=torch.int64)
    return bags.offsets.long().diff().view(len(bags.names), bags.batch_size)


def _interleave(flat: list[Tensor], parts: list[Bags], features: int) -> Tensor:
    """One feature-major tensor from the feature-major tensors of several batches."""
    split = [torch.split(tensor, _lengths(bags).sum(1).tolist()) for tensor, bags in zip(flat, parts, strict=True)]
    return torch.cat([pieces[feature] for feature in range(features) for pieces in split])
