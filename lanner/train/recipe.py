"""A recipe: everything that makes a training run, as one YAML file plus `key=value` changes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from lanner import storage
from lanner.embedding import EmbeddingSettings
from lanner.errors import ConfigError
from lanner.train.settings import Settings
from lanner.validation import validated


class ModelRecipe(BaseModel):
    """The model's `name`, and its hyperparameters under their own names."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str = "dlrm"

    @model_validator(mode="after")
    def _no_section(self) -> ModelRecipe:
        if "embedding" in self.hyperparameters:
            raise ValueError("`embedding` is a section of the recipe, beside `model`")
        return self

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Recipe(Settings):
    """`Settings`, the model, its `embedding` tables, the dataset `data` and the run directory `out`.

    `resume` goes on from the run's last checkpoint where there is one; `overwrite` allows an `out` that holds another
    run. `prep` is for whoever prepares the dataset (options of `lanner prep`); training does not read it.
    """

    data: str | None = None
    out: str | None = None
    model: ModelRecipe = ModelRecipe()
    embedding: EmbeddingSettings = EmbeddingSettings()
    resume: bool = False
    overwrite: bool = False
    prep: dict[str, Any] = Field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """The keywords of `Trainer`."""
        return {name: getattr(self, name) for name in Settings.model_fields}

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


def load(uri: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe file and apply `overrides`, each ``key=value`` or ``section.key=value`` with a YAML value.

    Raises ConfigError naming the file and the key at fault.
    """
    name = os.fspath(uri)
    try:
        values = yaml.safe_load(storage.read_text(uri)) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{name}: expected a mapping of recipe keys, got {type(values).__name__}")
    for override in overrides:
        _apply(values, override)
    return parse(values, name)


def parse(values: dict[str, Any], source: str = "recipe") -> Recipe:
    """A recipe from plain values; raises ConfigError naming `source` and the key at fault."""
    recipe: Recipe = validated(Recipe, values, source)
    return recipe


def _apply(values: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"{override!r}: expected key=value, such as model.dim=16")
    *sections, last = key.split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if values is None or not isinstance(values, dict):
            raise ConfigError(f"{override!r}: {section!r} is not a section with keys of its own")
    try:
        values[last] = _value(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{override!r}: {text!r} is not a valid YAML value") from error


def _value(text: str) -> Any:
    """The YAML value of `text`; numbers may be written 1e-3, which YAML 1.1 takes for text."""
    value = yaml.safe_load(text)
    if isinstance(value, str):
        try:
            return float(value) if any(c.isdigit() for c in value) else value
        except ValueError:
            return value
    return value
