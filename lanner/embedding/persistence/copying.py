"""Copying stored tables without what only training needs."""

from __future__ import annotations

import os
from collections.abc import Sequence

from lanner.embedding.persistence import description as descriptions
from lanner.embedding.persistence import files
from lanner.embedding.persistence.layout import KEY, directory_of, weights_form
from lanner.errors import DataError


def copy_weights(source: str | os.PathLike[str], path: str | os.PathLike[str], table_names: Sequence[str]) -> None:
    """Copy the keys and weights of full dumps from `source` to `path`, a block at a time; any two URIs.

    The bytes depend on those of the dump alone. Raises DataError naming the table where it is unfinished, damaged or
    a delta, or its keys do not rise; the copy then looks unfinished.
    """
    for name in table_names:
        _copy(source, path, name)


def _copy(source: str | os.PathLike[str], path: str | os.PathLike[str], name: str) -> None:
    found, where = descriptions.read(source, name), descriptions.where(source, name)
    if found.kind != "full":
        raise DataError(f"{where}: this is delta {found.sequence} of a full dump, expected the full dump")
    form, directory = weights_form(found.dim), directory_of(source, name)
    files.check_sizes(where, directory, form, found.files, found.rows)
    files.clear(directory_of(path, name))
    last: int | None = None
    with files.Output() as output:
        output.open(directory_of(path, name), form)
        for block in files.blocks(where, directory, form, found.files):
            last = files.check_keys(where, block[KEY], last, None if found.dynamic else found.rows)
            output.append(block)
        entries = output.close()
    found.model_copy(update={"files": entries, "counters": None}).write(directory_of(path, name))
