"""`Description`: what `table.json` says about the files beside it."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from lanner import storage
from lanner.embedding.persistence.layout import DESCRIPTION, directory_of
from lanner.errors import DataError

FORMAT = 1


class Entry(BaseModel):
    """Size of a file in bytes, and its BLAKE2b-128 checksum."""

    model_config = ConfigDict(extra="forbid")
    size: int
    checksum: str


class Description(BaseModel):
    """A table, or what changed in it.

    Attributes:
        rows: how many are stored.
        dtype: of the stored weights, whatever they were trained in.
        steps: optimizer steps that the collection had taken.
        counters: of a dynamic table.
        default: of a dynamic table, every value of the row that keys without a row read.
        files: by name.
        base, parent: of a delta, the `identity` of the full dump that it goes back to and of the dump it follows.
        sequence: how many deltas there are from the base to this one.
        since: the steps of the parent.
        id: the dump's own identity, a digest of everything else here, checksums of the files included.
    """

    model_config = ConfigDict(extra="forbid")
    format: int
    kind: Literal["full", "delta"] = "full"
    table: str | None = None
    rows: int
    dim: int
    dynamic: bool = False
    dtype: str
    optimizer: dict[str, Any]
    steps: int
    counters: dict[str, int] | None = None
    default: float | None = None
    base: str | None = None
    parent: str | None = None
    sequence: int = 0
    since: int | None = None
    files: dict[str, Entry]
    id: str | None = None

    @property
    def identity(self) -> str:
        """The digest of everything but `id`."""
        unnamed = {"id"} if self.default is not None else {"id", "default"}  # dumps of before it was kept have none
        content = json.dumps(self.model_dump(exclude=unnamed), sort_keys=True)
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def write(self, directory: str) -> Description:
        """Publish it, with its `id`, in the table's directory, which declares the files there complete."""
        named = self.model_copy(update={"id": self.identity})
        text = json.dumps(named.model_dump(exclude_none=True), indent=2) + "\n"
        storage.write_text(storage.join(directory, DESCRIPTION), text)
        return named


def where(path: str | os.PathLike[str], name: str) -> str:
    """How messages call a stored table."""
    return f"table {name!r} in {os.fspath(path)}"


def read(path: str | os.PathLike[str], name: str) -> Description:
    """The description of the table `name` of a dump.

    Raises DataError when there is none (unfinished), or it is damaged, of a later format or of another table.
    """
    uri = storage.join(directory_of(path, name), DESCRIPTION)
    if not storage.exists(uri):
        raise DataError(f"{where(path, name)}: no {DESCRIPTION}: not a finished dump")
    try:
        description = Description.model_validate(json.loads(storage.read_text(uri)))
    except (ValueError, ValidationError) as error:
        raise DataError(f"{where(path, name)}: {DESCRIPTION} is not valid: {error}") from error
    if description.table not in (None, name):  # dumps of before the name was kept have none
        raise DataError(f"{where(path, name)}: {DESCRIPTION} is that of table {description.table!r}")
    if description.format != FORMAT:
        raise DataError(f"{where(path, name)}: format is {description.format}, this version reads {FORMAT}")
    if description.id not in (None, description.identity):
        raise DataError(f"{where(path, name)}: {DESCRIPTION} was changed after it was written")
    return description
