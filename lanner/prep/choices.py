"""Choices of the caller that override what a schema says for all of its features at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from pydantic import ValidationError

from lanner.errors import ConfigError
from lanner.prep import transforms
from lanner.schema import Dense, HashEncoder, KeyEncoder, Schema, Sparse, Transform, VocabEncoder

_OF_VOCABULARIES = ("min_count", "max_size", "unknown_buckets", "order", "reserved", "max_rows")


@dataclass(frozen=True, slots=True)
class Choices:
    """None leaves the schema as it is. `hash_size` and `keys` turn vocabularies into hashing: they exclude the rest.

    `min_count` is one for all tables, or for single ones by name, where "*" stands for the others. `fill` is of the
    features with one value a row that have none in the schema; the rest as in `VocabEncoder`.
    """

    min_count: int | Mapping[str, int] | None = None
    max_size: int | None = None
    unknown_buckets: int | None = None
    hash_size: int | None = None
    keys: bool = False
    transform: Transform | None = None
    order: Literal["count", "seen"] | None = None
    reserved: bool | None = None
    fill: str | None = None
    max_rows: int | None = None

    def over(self, other: Choices) -> Choices:
        """These choices, and those of `other` where nothing is chosen here.

        Hashing leaves no room for what `other` says of vocabularies.
        """
        hashing = self.hash_size is not None or self.keys
        chosen: dict[str, Any] = {}
        for field in fields(self):
            own, theirs = getattr(self, field.name), getattr(other, field.name)
            unset = own is None or (field.name == "keys" and not own)
            chosen[field.name] = theirs if unset and not (hashing and field.name in _OF_VOCABULARIES) else own
        if isinstance(self.min_count, Mapping) and isinstance(other.min_count, int):
            chosen["min_count"] = {"*": other.min_count, **self.min_count}
        return Choices(**chosen)

    def apply(self, schema: Schema) -> Schema:
        """`schema` with the choices made. Raises ConfigError where they exclude each other or are out of range."""
        chosen = {name: getattr(self, name) for name in _OF_VOCABULARIES}
        self._check_tables(schema)
        vocabulary = {name: value for name, value in chosen.items() if value is not None}
        hashing = [name for name in ("hash_size", "keys") if getattr(self, name) not in (None, False)]
        if hashing and len(others := [*hashing, *vocabulary]) > 1:
            raise ConfigError(f"{others[0]} and {others[1]} exclude each other: hashing has no vocabulary")
        try:
            sparse = [self._encoded(feature, vocabulary).model_dump() for feature in schema.sparse]
            dense = [self._transformed(number).model_dump() for number in schema.dense]
            return Schema.parse({**schema.model_dump(), "sparse": sparse, "dense": dense}, "choices")
        except ValidationError as error:
            raise ConfigError("; ".join(map(_problem, error.errors()))) from error
        except ValueError as error:
            raise ConfigError(f"encoder choices: {error}") from error

    def _encoded(self, feature: Sparse, vocabulary: dict[str, Any]) -> Sparse:
        if not isinstance(feature.encoder, VocabEncoder):
            return feature
        own = dict(vocabulary)
        if isinstance(self.min_count, Mapping):
            least = self.min_count.get(feature.table_name, self.min_count.get("*"))
            own["min_count"] = feature.encoder.min_count if least is None else least
        encoder: VocabEncoder | HashEncoder | KeyEncoder = VocabEncoder(**{**feature.encoder.model_dump(), **own})
        if self.hash_size is not None:
            encoder = HashEncoder(size=self.hash_size)
        if self.keys:
            encoder = KeyEncoder()
        fill = self.fill if feature.fill is None and feature.one_hot else feature.fill
        return feature.model_copy(update={"encoder": encoder, "fill": fill})

    def _check_tables(self, schema: Schema) -> None:
        named = self.min_count if isinstance(self.min_count, Mapping) else {}
        tables = [f.table_name for f in schema.sparse if isinstance(f.encoder, VocabEncoder)]
        if unknown := [name for name in named if name != "*" and name not in tables]:
            raise ConfigError(f"min_count: no vocabulary table {unknown[0]!r}; there are {', '.join(tables) or 'none'}")

    def _transformed(self, number: Dense) -> Dense:
        if self.transform is None:
            return number
        changed = Dense(**{**number.model_dump(), "transform": self.transform, "parameters": {}})
        if self.transform not in transforms.FITTED:
            transforms.check(changed)
        return changed


def _problem(problem: Any) -> str:
    field = str(problem["loc"][-1])
    return f"{'hash_size' if field == 'size' else field}: {problem['msg']} (got {problem['input']!r})"
