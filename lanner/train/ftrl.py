"""`Ftrl`: FTRL-Proximal for dense weights, which PyTorch has none of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn


class Ftrl(torch.optim.Optimizer):
    """The step of `lanner.embedding.FTRL` on every weight; its formula stands in `lanner.embedding.optimizers`.

    A schedule may change `lr` of the parameter groups; the penalties keep the rate that they began with, so that what
    they pull towards does not move.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        beta: float = 0.0,
        l1: float = 0.0,
        l2: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "beta": beta, "l1": lr * l1, "l2": lr * l2, "decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step on all weights that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._step(weight, weight.grad, group)
        return loss

    def _step(self, weight: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            state["sum"], state["linear"] = torch.zeros_like(weight), torch.zeros_like(weight)
        if group["decay"]:
            gradient = gradient + group["decay"] * weight
        before = state["sum"].sqrt()
        state["sum"].addcmul_(gradient, gradient)
        root, linear = state["sum"].sqrt(), state["linear"]
        linear.add_(gradient, alpha=group["lr"]).sub_((root - before) * weight)
        shrunk = linear.clamp(-group["l1"], group["l1"]) - linear
        touched = state["sum"] > 0  # others would become 0 / 0
        weight.copy_(torch.where(touched, shrunk / (root + group["beta"] + group["l2"]), weight))
