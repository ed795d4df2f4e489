"""Which files a table has, what is in them, and blocks of rows by file."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from lanner import storage
from lanner.embedding.dynamic.transfer import META
from lanner.embedding.optimizers import Optimizer
from lanner.embedding.store import Rows
from lanner.errors import DataError

if TYPE_CHECKING:
    from lanner.embedding.collection import EmbeddingCollection

DESCRIPTION = "table.json"
FOLDER = "tables"
"""Where checkpoints and model versions keep their dump."""
KEY, WEIGHTS, STATE = "key", "emb_vector", "state."

Array = np.ndarray[Any, Any]
Block = dict[str, Array]
"""Some rows, in rising order of their keys: arrays [n, ...] by the file that they belong to."""
Form = dict[str, tuple[tuple[int, ...], str]]
"""Shape of a row and type of its values, by file."""

WAITING: Form = {"waiting.key": ((), "<i8"), "waiting.count": ((), "<i8"), "waiting.recent": ((), "|u1")}
"""What is kept of the keys that wait for a row of a dynamic table."""

DELETED: Form = {"deleted": ((), "<i8")}
"""What a delta has of the keys that left since its parent."""


def directory_of(path: str | os.PathLike[str], table: str) -> str:
    """Where the dump `path` has a table."""
    return storage.join(path, storage.safe_name(table))


def needs_checksum(name: str) -> bool:
    """Whether the file `name` of a directory with a dump in FOLDER is to be checked by the directory's manifest.

    Not so the tables' big files: `load` checks them as it reads them, by the checksums in their `table.json`.
    """
    return not name.startswith(f"{FOLDER}/") or name.endswith(f"/{DESCRIPTION}")


def weights_form(dim: int) -> Form:
    """The files of keys and of rows of `dim` weights, KEY first."""
    return {KEY: ((), "<i8"), WEIGHTS: ((dim,), "<f4")}


def form_of(optimizer: Optimizer, dim: int, dynamic: bool) -> Form:
    """The files of rows of `dim` weights with everything that training needs, KEY first."""
    states = {f"{STATE}{name}": (each.shape, each.dtype) for name, each in optimizer.row_states(dim).items()}
    meta = dict.fromkeys(META if dynamic else (), ((), "<i8"))
    form = {**weights_form(dim), **states, **meta}
    return {name: (tuple(shape), np.dtype(kind).newbyteorder("<").str) for name, (shape, kind) in form.items()}


def row_bytes(form: Form, name: str) -> int:
    """Bytes of one row in the file `name`."""
    shape, kind = form[name]
    return math.prod(shape) * np.dtype(kind).itemsize


def block_of(rows: Rows) -> Block:
    """Rows by file."""
    states = {name if name in META else f"{STATE}{name}": values for name, values in rows.states.items()}
    return {KEY: rows.keys, WEIGHTS: rows.weights, **states}


def rows_of(block: Block) -> Rows:
    """Inverse of `block_of`."""
    states = {name.removeprefix(STATE): each for name, each in block.items() if name not in (KEY, WEIGHTS)}
    return Rows(block[KEY], block[WEIGHTS], states)


def chosen(collection: EmbeddingCollection, table_names: object) -> list[str]:
    """The names of the tables meant. Raises DataError for one that does not exist."""
    known = [table.name for table in collection.tables]
    names = known if table_names is None else list(table_names)  # type: ignore[call-overload]
    for name in names:
        if name not in known:
            raise DataError(f"there is no table {name!r} to store or load; there are {', '.join(known)}")
    return names
