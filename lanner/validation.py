"""Settings from plain values, with errors that say which key is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from lanner.errors import ConfigError

_Made = TypeVar("_Made")
_SHOWN = 60
"""Most characters of a value in an error."""


def validated(kind: type[BaseModel], values: Mapping[str, Any], source: str) -> Any:
    """`kind` from plain values; raises ConfigError naming `source`, each key at fault and the value seen."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: " + "; ".join(_problem(p, kind) for p in error.errors())) from error


def built(kind: Callable[..., _Made], values: Mapping[str, Any], what: str) -> _Made:
    """`kind(**values)`; raises ConfigError naming `what` and a key that `kind` does not have or needs."""
    known = inspect.signature(kind).parameters
    for key in values:
        if key not in known:
            raise ConfigError(f"{what}: no such key: {key!r}; the keys are {', '.join(known) or 'none'}")
    for key, parameter in known.items():
        if parameter.default is parameter.empty and key not in values:
            raise ConfigError(f"{what}: {key} is missing")
    try:
        return kind(**values)
    except TypeError as error:
        raise ConfigError(f"{what}: {error}") from error


def differences(ours: Any, theirs: Any, place: str) -> list[tuple[str, Any, Any]]:
    """Where two plain values differ: the key in full, and both values there; None for one that is not given."""
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        return [] if ours == theirs else [(place, ours, theirs)]
    keys = dict.fromkeys([*ours, *theirs])
    return [d for key in keys for d in differences(ours.get(key), theirs.get(key), f"{place}.{key}")]


def _problem(problem: Any, kind: type[BaseModel]) -> str:
    place = ".".join(str(step) for step in problem["loc"] if not str(step).startswith("is-instance"))
    if problem["type"] == "extra_forbidden":
        fields = f"; the keys here are {', '.join(kind.model_fields)}" if len(problem["loc"]) == 1 else ""
        return f"{place}: no such key{fields}"
    if problem["type"] in ("model_type", "dict_type"):
        return f"{place}: expected a mapping (got {_shown(problem['input'])})"
    message: str = problem["msg"].removeprefix("Value error, ")
    # A whole section says nothing that the message of its own check does not.
    whole = problem["type"] == "value_error" and isinstance(problem["input"], dict)
    return (f"{place}: " if place else "") + message + ("" if whole else f" (got {_shown(problem['input'])})")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
