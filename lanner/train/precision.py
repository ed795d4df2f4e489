"""Number formats of the forward pass: float32, or 16-bit under autocast; weights and embeddings stay float32."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from lanner.embedding import EmbeddingCollection
from lanner.train.processes import Processes

_GROWTH_STEPS = 2000
_START_SCALE = 2.0**16


class Precision:
    """fp32 and bf16: backward updates the embeddings in the same pass, then the dense optimizer steps."""

    def __init__(self, name: str, embedding: EmbeddingCollection, device: str = "cpu") -> None:
        self.name, self.embedding, self.device = name, embedding, device
        embedding.defer_updates = False

    def autocast(self) -> AbstractContextManager[Any]:
        """Context of the forward pass."""
        return nullcontext() if self.name == "fp32" else torch.autocast(self.device, torch.bfloat16)

    def step(self, loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
        """Backward from `loss`, then every update."""
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return {}

    def load(self, state: dict[str, float]) -> None:
        """Put back what `state` gave."""


class ScaledPrecision(Precision):
    """fp16 with dynamic loss scaling (Micikevicius et al. 2018, arXiv:1710.03740).

    The loss is multiplied by a scale so that small gradients survive in 16 bits. Where any gradient overflows, the
    step is left out (dense and embeddings alike, in all processes) and the scale halves; after 2,000 good steps it
    doubles.
    """

    def __init__(self, embedding: EmbeddingCollection, processes: Processes, device: str = "cpu") -> None:
        super().__init__("fp16", embedding, device)
        self._processes = processes
        self.scale, self.good_steps = _START_SCALE, 0
        self._embedded_finite = True
        embedding.defer_updates = True
        embedding.register_forward_hook(self._watch)

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device, torch.float16)

    def step(self, loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad(set_to_none=True)
        self._embedded_finite = True
        (loss * self.scale).backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        finite = self._embedded_finite and all(bool(torch.isfinite(g).all()) for g in gradients)
        if self._processes.any(not finite):
            self.embedding.drop_updates()
            self.scale, self.good_steps = max(self.scale / 2, 1.0), 0
            return
        torch._foreach_mul_(gradients, 1 / self.scale)
        optimizer.step()
        self.embedding.apply_updates(gradient_scale=1 / self.scale)
        self.good_steps += 1
        if self.good_steps % _GROWTH_STEPS == 0:
            self.scale *= 2

    def state(self) -> dict[str, float]:
        return {"scale": self.scale, "good_steps": self.good_steps}

    def load(self, state: dict[str, float]) -> None:
        self.scale, self.good_steps = state["scale"], int(state["good_steps"])

    def _watch(self, _module: Any, _inputs: Any, embedded: Tensor) -> None:
        if embedded.requires_grad:
            embedded.register_hook(self._check)  # type: ignore[no-untyped-call]

    def _check(self, gradient: Tensor) -> None:
        self._embedded_finite = bool(torch.isfinite(gradient).all())


def build(name: str, embedding: EmbeddingCollection, processes: Processes, device: str = "cpu") -> Precision:
    """The precision called `name`: fp32, bf16 or fp16."""
    return ScaledPrecision(embedding, processes, device) if name == "fp16" else Precision(name, embedding, device)
