"""The dense side's optimizers: PyTorch's own, chosen by the same settings as the embeddings'."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lanner.embedding.optimizers import FTRL, SGD, Adagrad, Adam, AdamW, Optimizer, RMSProp, RowWiseAdagrad
from lanner.errors import DataError
from lanner.train.ftrl import Ftrl


def require_dense(settings: Optimizer) -> Optimizer:
    """`settings`; raises ValueError where they are not for dense weights."""
    if isinstance(settings, RowWiseAdagrad):
        raise ValueError(
            "RowWiseAdagrad is for embeddings alone: it keeps a number for each row of a table, and dense weights "
            "have no such rows; expected SGD, Adagrad, RMSProp, Adam, AdamW or FTRL"
        )
    return settings


def build(settings: Optimizer, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The PyTorch optimizer of `settings`; with `clip_norm`, each of its steps cuts the gradients first."""
    parameters = list(parameters)
    optimizer = _unclipped(settings, parameters)
    if settings.clip_norm is not None:
        optimizer.register_step_pre_hook(partial(_clip, parameters, settings.clip_norm))
    return optimizer


def _clip(parameters: list[nn.Parameter], norm: float, *_: Any) -> None:
    torch.nn.utils.clip_grad_norm_(parameters, norm)


def _unclipped(settings: Optimizer, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    common: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if isinstance(settings, SGD):
        return torch.optim.SGD(parameters, **common, momentum=settings.momentum, nesterov=settings.nesterov, fused=True)
    if isinstance(settings, Adagrad):
        initial = settings.initial_accumulator
        return torch.optim.Adagrad(
            parameters, **common, eps=settings.eps, initial_accumulator_value=initial, fused=True
        )
    if isinstance(settings, RMSProp):
        return torch.optim.RMSprop(parameters, **common, alpha=settings.alpha, eps=settings.eps)
    if isinstance(settings, Adam | AdamW):
        kind = torch.optim.Adam if isinstance(settings, Adam) else torch.optim.AdamW
        return kind(parameters, **common, betas=settings.betas, eps=settings.eps, fused=True)
    if isinstance(settings, FTRL):
        return Ftrl(parameters, **common, beta=settings.beta, l1=settings.l1, l2=settings.l2)
    raise TypeError(f"the dense side cannot use {settings!r}")


def state_tensors(optimizer: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    """The optimizer's state as ``<parameter>/<state>`` tensors; `names` are its parameters' names in order."""
    state = optimizer.state_dict()["state"]
    return {
        f"{names[index]}/{key}": torch.as_tensor(value)
        for index, entry in state.items()
        for key, value in entry.items()
    }


def load_state(
    optimizer: torch.optim.Optimizer, names: list[str], tensors: dict[str, Tensor], entries: Iterable[str] = ()
) -> None:
    """Put back what `state_tensors` gave.

    Raises DataError naming a parameter that is not there, and what is missing of `entries`, the names that it gave, or
    of what other parameters have.
    """
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, field = key.rpartition("/")
        if name not in names:
            raise DataError(f"dense optimizer state of {name!r}: the model has no such parameter")
        state.setdefault(names.index(name), {})[field] = tensor
    fields = sorted({field for values in state.values() for field in values})
    for entry in (*entries, *(f"{names[index]}/{field}" for index in state for field in fields)):
        if entry not in tensors:
            raise DataError(f"dense optimizer state: {entry!r} is missing; pass optimizer_state=False to do without")
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
