"""How a raw categorical value becomes an id: the kinds of encoders a schema can name."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Part(BaseModel):
    """A piece of a schema: fixed once made, and without fields that nobody knows."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class VocabEncoder(Part):
    """Ids by falling frequency (ties by value) for values seen at least `min_count` times in the training rows.

    Id 0 is the missing value. With `unknown_buckets` = 0 a rare or unseen value shares id 0; with n >= 1 such
    values take ids 1..n by hash. Known values follow. `max_size` keeps only the most frequent ones.

    Other people's conventions number otherwise: `order` "seen" goes by the row a value was seen in first (ties by
    value); `reserved` false starts the known values at id 0, which missing, rare and unseen ones then share with the
    first of them; and ids are taken modulo `max_rows` where that is given.
    """

    kind: Literal["vocab"] = "vocab"
    min_count: int = Field(default=15, ge=1)
    max_size: int | None = Field(default=None, ge=1)
    unknown_buckets: int = Field(default=0, ge=0)
    order: Literal["count", "seen"] = "count"
    reserved: bool = True
    max_rows: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _reserved_or_not(self) -> VocabEncoder:
        if not self.reserved and self.unknown_buckets:
            raise ValueError(f"unknown_buckets {self.unknown_buckets} are reserved ids, but `reserved` is false")
        return self

    @property
    def first_id(self) -> int:
        """Id of the first known value."""
        return 1 + self.unknown_buckets if self.reserved else 0


class HashEncoder(Part):
    """Ids 1..size by a hash that is the same in every process and release; 0 is the missing value."""

    kind: Literal["hash"] = "hash"
    size: int = Field(ge=1)
    seed: int = Field(default=0, ge=0, lt=2**63)


class IdentityEncoder(Part):
    """The raw integer less `lowest` is the id, 0 <= id < size.

    A missing cell takes id `missing`, a value outside the range id `outside`; where null, each is an error.
    """

    kind: Literal["identity"] = "identity"
    size: int = Field(ge=1)
    missing: int | None = None
    lowest: int = 0
    outside: int | None = None

    @property
    def values(self) -> str:
        """The values taken, for messages."""
        return f"{self.lowest}..{self.lowest + self.size - 1}"


class KeyEncoder(Part):
    """Ids are 64-bit hashes, that is any int64, for a dynamic table; no vocabulary is kept.

    The hash maps the 64-bit keys one to one, so that only texts (first hashed to 64 bits) could ever share an id. 0 is
    the missing value.
    """

    kind: Literal["key"] = "key"
    seed: int = Field(default=0, ge=0, lt=2**63)


Encoding = Annotated[VocabEncoder | HashEncoder | IdentityEncoder | KeyEncoder, Field(discriminator="kind")]
