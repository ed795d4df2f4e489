"""The autograd node of an embedding collection: its backward updates the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lanner.embedding.gradients import Pending
from lanner.embedding.prepared import Prepared
from lanner.errors import LannerError

if TYPE_CHECKING:
    from lanner.embedding.collection import EmbeddingCollection


class FusedLookup(Function):
    """Forward looks up; backward takes the optimizer step (or stores it, when updates are deferred).

    `anchor` is a scalar that requires a gradient, so that autograd always reaches backward.
    """

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, collection: EmbeddingCollection, prepared: Prepared) -> Tensor:
        """The flat output."""
        out, ctx.parts, ctx.winners = collection.look_up(prepared)
        ctx.collection, ctx.used, ctx.given, ctx.steps = collection, False, prepared, collection.steps
        # Backward refuses them if they were changed in place.
        ctx.save_for_backward(prepared.values, prepared.offsets, prepared.weights)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        """Update the rows; autograd gets no gradient from here."""
        _ = ctx.saved_tensors
        if ctx.used:
            raise LannerError("embedding: backward ran twice over one forward, whose rows are updated already")
        ctx.used = True
        gradient = gradient.to(torch.float32).contiguous()
        ctx.collection.take_gradient(Pending(ctx.parts, gradient, ctx.winners, ctx.given.held, ctx.given, ctx.steps))
        return None, None, None
