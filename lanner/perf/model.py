"""What the server says about a model: its tensors, its largest batch, and its schema if it carries one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lanner.errors import ConfigError
from lanner.schema import Schema


@dataclass(frozen=True, slots=True)
class Input:
    """One input tensor; `shape` is without the batch dimension, -1 = open. `optional` ones may be left out."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """A served model. `batched` = tensors have a leading batch dimension; `max_batch_size` None = not stated."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    batched: bool
    max_batch_size: int | None
    schema: Schema | None

    def check_batch(self, batch: int) -> None:
        """Raise ConfigError when requests of `batch` rows cannot be made."""
        if not self.batched and batch > 1:
            raise ConfigError(f"model {self.name!r} does not take batches; --batch {batch} must be 1")
        if self.max_batch_size and batch > self.max_batch_size:
            raise ConfigError(f"model {self.name!r} takes at most {self.max_batch_size} rows a request, got {batch}")


def describe(metadata: Mapping[str, Any], config: Mapping[str, Any] | None) -> Model:
    """The model from the answers to the metadata and configuration calls (JSON form).

    Without a configuration (KServe servers need not have one) a leading -1 is taken for the batch dimension.
    """
    shapes = {tensor["name"]: tuple(int(size) for size in tensor["shape"]) for tensor in metadata.get("inputs", ())}
    limit = None if config is None else int(config.get("max_batch_size", 0))
    batched = limit > 0 if limit is not None else all(shape[:1] == (-1,) for shape in shapes.values())
    optional = {tensor["name"] for tensor in (config or {}).get("input", ()) if tensor.get("optional")}
    inputs = tuple(
        Input(tensor["name"], tensor["datatype"], shapes[tensor["name"]][batched:], tensor["name"] in optional)
        for tensor in metadata.get("inputs", ())
    )
    return Model(
        name=str(metadata["name"]),
        versions=tuple(str(version) for version in metadata.get("versions", ())),
        platform=str(metadata.get("platform", "")),
        inputs=inputs,
        outputs=tuple(tensor["name"] for tensor in metadata.get("outputs", ())),
        batched=batched,
        max_batch_size=limit or None,
        schema=_schema(str(metadata["name"]), config),
    )


def _schema(name: str, config: Mapping[str, Any] | None) -> Schema | None:
    parameter = ((config or {}).get("parameters") or {}).get("schema")
    text = parameter.get("string_value") if isinstance(parameter, Mapping) else parameter
    if not text:
        return None
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"model {name!r}: its `schema` parameter is not JSON: {error}") from error
    return Schema.parse(values, f"the schema of model {name!r}")
