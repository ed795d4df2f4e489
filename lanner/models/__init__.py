"""One readable file per model, and `build`, which makes any of them from its name and hyperparameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from lanner.embedding import EmbeddingSettings
from lanner.errors import ConfigError
from lanner.models.dlrm import DLRM
from lanner.models.ranking import RankingModel
from lanner.schema import Schema

__all__ = ["DLRM", "RankingModel", "build", "name_of"]

_MODELS: dict[str, Any] = {"dlrm": DLRM}


def build(
    name: str, schema: Schema, embedding: EmbeddingSettings | Mapping[str, Any] | None = None, **hyperparameters: Any
) -> RankingModel:
    """The model called `name` for `schema`, with what `embedding` says of its tables.

    Raises ConfigError for an unknown name, hyperparameter or table, and for a model too big for memory.
    """
    kind = _MODELS.get(name)
    if kind is None:
        raise ConfigError(f"model.name: {name!r}; expected one of {', '.join(sorted(_MODELS))}")
    allowed = [key for key in inspect.signature(kind.__init__).parameters if key not in ("self", "schema", "embedding")]
    for key in hyperparameters:
        if key not in allowed:
            raise ConfigError(f"model.{key}: {name} has no such hyperparameter; it has {', '.join(allowed)}")
    try:
        model: RankingModel = kind(schema, embedding=embedding, **hyperparameters)
        return model
    except (MemoryError, RuntimeError) as error:  # PyTorch's allocator raises the latter
        if isinstance(error, RuntimeError) and "DefaultCPUAllocator" not in str(error):
            raise
        size = re.search(r"allocate (\d+) bytes", str(error))
        what = f"one layer needs {int(size[1]):,} bytes" if size else str(error)
        raise ConfigError(f"model: {name} is too big for this machine's memory: {what}") from error


def name_of(model: RankingModel) -> str:
    """The name under which `build` makes models of this class; raises ConfigError when there is none."""
    for name, kind in _MODELS.items():
        if type(model) is kind:
            return name
    raise ConfigError(f"{type(model).__name__} is not one of Lanner's models, so it cannot be rebuilt by name")
