"""Whether exported files score as the model does: on random rows, with no more of the tables than these need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from lanner import storage
from lanner.data.batch import Bags
from lanner.embedding import persistence
from lanner.embedding.named import ids_of
from lanner.embedding.store import Rows
from lanner.errors import DataError, ExportError
from lanner.export.graph import GRAPH, DenseGraph
from lanner.export.tables import config_of
from lanner.models import RankingModel
from lanner.schema import Schema
from lanner.train import checkpoint

TOLERANCE = 1e-6
_SAMPLE = 97  # rows of the random batch that is scored both ways


class Sample(NamedTuple):
    """Random rows: dense float32 [n, D] and bags."""

    dense: np.ndarray
    bags: Bags


def model_without_rows(source: str, schema: Schema) -> RankingModel:
    """The model of a checkpoint whose tables hold no rows: dynamic ones, whatever `schema` says.

    So that a model can be exported in little memory, however large its tables are, and by this process alone.
    """
    tables = tuple(table.model_copy(update={"rows": "dynamic"}) for table in schema.tables)
    stored = {table.name: persistence.describe(storage.join(source, checkpoint.TABLES), table.name) for table in tables}
    defaults = {name: {"dynamic": {"default": found.default or 0.0}} for name, found in stored.items()}
    here = {"version": 1, "world_size": 1, "tables": {name: {"kind": "table", "ranks": [0]} for name in stored}}
    settings = {"tables": defaults, "plan": here}
    model = checkpoint.restore_dense(source, schema.model_copy(update={"tables": tables}), settings)
    for table in schema.tables:
        found, expected = config_of(table, stored[table.name]), model.embedding.config(table.name)
        if found.dim != expected.dim:
            raise DataError(f"{source}: table {table.name!r} has dim {found.dim}, the model expects {expected.dim}")
    return model


def verify(model: RankingModel, directory: Path) -> None:
    """Score random rows with the exported graph and with the model. Raises ExportError where they differ.

    `model` is one that `model_without_rows` made; it gets the rows that are needed from the exported tables, which
    were compared with the model's by their checksums.
    """
    keys = {table.name: _mapped(directory, table.name)[0] for table in model.embedding.tables}
    schema, graph = Schema.load(directory / "schema.yaml"), DenseGraph(directory / GRAPH)
    dense, bags = random_batch(schema, _SAMPLE, np.random.default_rng(0), keys)
    _place_rows(model, directory, bags)
    with torch.inference_mode():
        none = torch.empty(len(dense), 0)  # bags without features do not know the batch size
        embedded = model.embedding(bags) if bags.names else none
        expected = torch.sigmoid(model.head(torch.from_numpy(dense), embedded)).numpy()
    scores = graph(dense, embedded.numpy())
    if scores.shape != expected.shape:
        raise ExportError(f"the exported graph gives scores of shape {scores.shape}, the model {expected.shape}")
    difference = float(np.abs(scores - expected).max())
    if not difference <= TOLERANCE:  # NaN is a difference too
        raise ExportError(f"exported scores differ from the model's by {difference:g}, allowed are {TOLERANCE:g}")


def _place_rows(model: RankingModel, directory: Path, bags: Bags) -> None:
    """Put the rows of the ids in `bags` into the model's tables, from those in `directory`."""
    for table in model.embedding.tables:
        keys, weights = _mapped(directory, table.name)
        features = [feature.name for feature in model.embedding.features if feature.table == table.name]
        spans = [ids_of(bags, bags.names.index(name), bags.batch_size) for name in features]
        ids = np.unique(np.concatenate([bags.values[span].numpy() for span in spans]))
        at = np.searchsorted(keys, ids)
        known = at[np.isin(ids, keys[at[at < len(keys)]])]
        model.embedding.place(table.name, Rows(keys[known], weights[known], {}))


def _mapped(directory: Path, table: str) -> tuple[np.ndarray, np.ndarray]:
    """Keys and weights of an exported table, mapped and not read."""
    found = persistence.describe(directory / persistence.FOLDER, table)
    form, folder = (
        persistence.weights_form(found.dim),
        Path(persistence.directory_of(directory / persistence.FOLDER, table)),
    )
    if not found.rows:  # nothing to map
        return np.empty(0, np.int64), np.empty((0, found.dim), np.float32)
    keys, weights = (
        np.memmap(folder / name, kind, "r", shape=(found.rows, *shape)) for name, (shape, kind) in form.items()
    )
    return keys, weights


def random_batch(
    schema: Schema, count: int, rng: np.random.Generator, keys: Mapping[str, np.ndarray] | None = None
) -> Sample:
    """Random rows that fit the schema: dense float32 [count, D] and bags, up to 3 ids in a ragged one.

    Ids of dynamic tables are half of them of the known `keys`, by table, the others any int64.
    """
    dense = rng.standard_normal((count, len(schema.dense)), dtype=np.float32)
    values: list[np.ndarray] = []
    lengths: list[np.ndarray] = []
    for feature in schema.sparse:
        rows = schema.table(feature.table_name).rows
        most = min(feature.max_hotness or 3, 3)
        sizes = rng.integers(0, most + 1, count) if feature.hotness is None else np.full(count, feature.hotness)
        lengths.append(sizes)
        if isinstance(rows, int):
            values.append(rng.integers(0, rows, sizes.sum()))
        else:
            values.append(_any_keys(int(sizes.sum()), rng, (keys or {}).get(feature.table_name)))
    names = tuple(feature.name for feature in schema.sparse)
    ids = torch.from_numpy(_joined(values))
    if all(feature.one_hot for feature in schema.sparse):
        return Sample(dense, Bags(names, ids))
    return Sample(dense, Bags.from_lengths(names, ids, torch.from_numpy(_joined(lengths))))


def _any_keys(count: int, rng: np.random.Generator, known: np.ndarray | None) -> np.ndarray:
    every = np.iinfo(np.int64)
    drawn = rng.integers(every.min, every.max, count, endpoint=True)
    if known is not None and len(known):
        drawn[::2] = known[rng.integers(0, len(known), len(drawn[::2]))]
    return drawn


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
