"""Settings from plain values, with errors that say which key is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from lanner.errors import ConfigError


def validated(kind: type[BaseModel], values: Mapping[str, Any], source: str) -> Any:
    """`kind` from plain values; raises ConfigError naming `source`, each key at fault and the value seen."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: " + "; ".join(_problem(p, kind) for p in error.errors())) from error


def _problem(problem: Any, kind: type[BaseModel]) -> str:
    place = ".".join(str(step) for step in problem["loc"] if not str(step).startswith("is-instance"))
    if problem["type"] == "extra_forbidden":
        fields = f"; the keys here are {', '.join(kind.model_fields)}" if len(problem["loc"]) == 1 else ""
        return f"{place}: no such key{fields}"
    return f"{place}: {problem['msg'].removeprefix('Value error, ')} (got {problem['input']!r})"
