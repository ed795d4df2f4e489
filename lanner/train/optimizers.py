"""The dense side's optimizers: PyTorch's own, chosen by the same settings as the embeddings'."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from lanner.embedding.optimizers import SGD, Adagrad, Adam
from lanner.errors import ConfigError, DataError


def build(settings: Any, parameters: Iterable[nn.Parameter], weight_decay: float = 0.0) -> torch.optim.Optimizer:
    """The PyTorch optimizer of `settings`; `weight_decay` is the L2 penalty added to the gradients."""
    parameters = list(parameters)
    if isinstance(settings, SGD):
        return torch.optim.SGD(parameters, lr=settings.lr, weight_decay=weight_decay, fused=True)
    if isinstance(settings, Adagrad):
        return torch.optim.Adagrad(
            parameters,
            lr=settings.lr,
            eps=settings.eps,
            initial_accumulator_value=settings.initial_accumulator,
            weight_decay=weight_decay,
            fused=True,
        )
    if isinstance(settings, Adam):
        return torch.optim.Adam(
            parameters, settings.lr, settings.betas, settings.eps, weight_decay=weight_decay, fused=True
        )
    raise ConfigError(f"dense_optimizer: {type(settings).__name__} is for embeddings; expected SGD, Adagrad or Adam")


def state_tensors(optimizer: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    """The optimizer's state as ``<parameter>/<state>`` tensors; `names` are its parameters' names in order."""
    state = optimizer.state_dict()["state"]
    return {
        f"{names[index]}/{key}": torch.as_tensor(value)
        for index, entry in state.items()
        for key, value in entry.items()
    }


def load_state(optimizer: torch.optim.Optimizer, names: list[str], tensors: dict[str, Tensor]) -> None:
    """Put back what `state_tensors` gave; raises DataError naming a parameter that is not there."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, field = key.rpartition("/")
        if name not in names:
            raise DataError(f"dense optimizer state of {name!r}: the model has no such parameter")
        state.setdefault(names.index(name), {})[field] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
