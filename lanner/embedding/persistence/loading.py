"""Reading tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lanner.embedding.persistence import description as descriptions
from lanner.embedding.persistence.chain import Origin, follows
from lanner.embedding.persistence.coming import Coming
from lanner.embedding.persistence.layout import chosen
from lanner.embedding.sharding.peers import Peers
from lanner.errors import DataError

if TYPE_CHECKING:
    from lanner.embedding.collection import EmbeddingCollection


def load(
    collection: EmbeddingCollection,
    path: str | os.PathLike[str],
    table_names: Sequence[str] | None = None,
    optimizer_state: bool = True,
) -> None:
    """Read the tables called `table_names` (default: all) that `dump` wrote, by any number of processes.

    With `optimizer_state` everything that training needs is read too, and `steps` set; a dump by another optimizer,
    or without the state's files, is an error, and so is a value that is not finite. Without, states of static tables
    are left as they are, and rows of dynamic ones start afresh. Raises DataError naming the table where anything is
    missing or differs in rows, width, size or checksum: all descriptions and sizes are checked before any table is
    changed, the rest as files are read. With several processes all must call it; each keeps its part of what it
    reads. An error in one is raised in all.
    """
    peers = Peers(collection.wire)
    names = peers.together(lambda: chosen(collection, table_names))
    found = peers.together(lambda: {name: _full(collection, path, name, optimizer_state) for name in names})
    steps = collection.steps
    if optimizer_state and found:
        steps = max(coming.description.steps for coming in found.values())
    for name, coming in found.items():
        collection.origins.pop(name, None)
        peers.together(partial(coming.replace, steps))
        collection.origins[name] = Origin((coming.description.identity,), steps, optimizer_state)
    _continue_after(collection, steps)


def _full(collection: EmbeddingCollection, path: str | os.PathLike[str], name: str, optimizer_state: bool) -> Coming:
    """A full dump, which suits the collection."""
    coming = Coming(collection, path, descriptions.read(path, name), name, optimizer_state)
    if coming.description.kind != "full":
        number = coming.description.sequence
        raise DataError(f"{coming.where}: this is delta {number} of a full dump, expected the full dump")
    coming.check()
    return coming


def load_delta(
    collection: EmbeddingCollection, path: str | os.PathLike[str], table_names: Sequence[str] | None = None
) -> None:
    """Bring the tables called `table_names` (default: all), loaded from a full dump, to where the delta `path` ends.

    Deltas must come in order, on tables that were not trained since they were loaded. One that is loaded already
    changes nothing. Optimizer state is read if that of the full dump was. Raises DataError naming the table and the
    gap for a delta that does not follow, and where `load` does; before any table is changed. With several processes
    all must call it.
    """
    peers = Peers(collection.wire)
    names = peers.together(lambda: chosen(collection, table_names))
    found = peers.together(lambda: [each for name in names if (each := _delta(collection, path, name))])
    whole = [coming.description.steps for coming in found if coming.optimizer_state]
    steps = max(whole, default=collection.steps)
    for coming in found:
        origin = collection.origins.pop(coming.name)
        peers.together(partial(coming.apply, steps))
        chain = (*origin.chain, coming.description.identity)
        collection.origins[coming.name] = replace(origin, chain=chain, steps=steps)
    _continue_after(collection, steps)


def _delta(collection: EmbeddingCollection, path: str | os.PathLike[str], name: str) -> Coming | None:
    """A delta that follows what was loaded, every byte of it checked; None where it is loaded already."""
    description, origin = descriptions.read(path, name), collection.origins.get(name)
    if not follows(descriptions.where(path, name), origin, description, collection.steps):
        return None
    assert origin is not None
    coming = Coming(collection, path, description, name, origin.optimizer_state)
    coming.check()
    coming.check_content()
    return coming


def _continue_after(collection: EmbeddingCollection, steps: int) -> None:
    """Tables that were not loaded go on from there too."""
    collection.steps = steps
    for store in collection.stores:
        store.continue_after(steps)
