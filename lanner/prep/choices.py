"""Choices of the caller that override what a schema says for all of its features at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from lanner.errors import ConfigError
from lanner.prep import transforms
from lanner.schema import Dense, HashEncoder, KeyEncoder, Schema, Sparse, Transform, VocabEncoder


@dataclass(frozen=True, slots=True)
class Choices:
    """None leaves the schema as it is. `hash_size` and `keys` turn vocabularies into hashing: they exclude the rest."""

    min_count: int | None = None
    max_size: int | None = None
    unknown_buckets: int | None = None
    hash_size: int | None = None
    keys: bool = False
    transform: Transform | None = None

    def apply(self, schema: Schema) -> Schema:
        """`schema` with the choices made. Raises ConfigError where they exclude each other or are out of range."""
        chosen = {name: getattr(self, name) for name in ("min_count", "max_size", "unknown_buckets")}
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
        encoder: VocabEncoder | HashEncoder | KeyEncoder = VocabEncoder(
            **{**feature.encoder.model_dump(), **vocabulary}
        )
        if self.hash_size is not None:
            encoder = HashEncoder(size=self.hash_size)
        if self.keys:
            encoder = KeyEncoder()
        return feature.model_copy(update={"encoder": encoder})

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
