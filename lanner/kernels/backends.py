"""Which form of a kernel runs: the caller's choice, or by where the tensors lie."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Literal

from torch import Tensor

from lanner.errors import ConfigError, MissingExtraError

Backend = Literal["auto", "reference", "cpu", "gpu"]
"""`auto` is `gpu` for tensors on a CUDA device, and `cpu` for others."""


def chosen(backend: Backend, tensor: Tensor) -> Backend:
    """`backend`, with `auto` resolved for work on `tensor`. Raises ConfigError where that one cannot work on it."""
    if backend == "auto":
        return "gpu" if tensor.is_cuda else "cpu"
    if tensor.is_cuda != (backend == "gpu") and not (backend == "gpu" and os.environ.get("TRITON_INTERPRET") == "1"):
        place = "a CUDA device (or TRITON_INTERPRET=1)" if backend == "gpu" else "the CPU"
        raise ConfigError(f"backend {backend!r} works on tensors on {place}, got one on {tensor.device}")
    return backend


def gpu(operation: str) -> Any:
    """The module `lanner.kernels.<operation>.gpu`. Raises MissingExtraError without Triton."""
    try:
        return import_module(f"lanner.kernels.{operation}.gpu")
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise MissingExtraError("the GPU backend", "gpu") from error
