"""What a recipe asks of memory and processors, known before anything of its size is allocated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from lanner.embedding import tables
from lanner.embedding.planner import Dense, Workload, hotness_of, require_fits
from lanner.embedding.planner.free_memory import free_bytes, resident_bytes
from lanner.embedding.sharding.placement import Plan
from lanner.models import RankingModel, build
from lanner.schema import Schema
from lanner.train.recipe import Recipe


def workload(
    recipe: Recipe,
    schema: Schema,
    hotness: Mapping[str, float] | None = None,
    rows: Mapping[str, int] | None = None,
) -> Workload:
    """What one step of `recipe` on data of `schema` is made of.

    `hotness` gives ids of a sample by feature where the schema's own is not to be taken, `rows` the expected rows by
    dynamic table. Raises ConfigError where somebody has to say one of them, or a name is not there.
    """
    model = _outline(recipe, schema)
    sizes = {table.name: table.rows for table in tables.from_schema(schema, 1)[0]}
    collection = model.embedding
    return Workload.of(
        [replace(table, rows=sizes[table.name]) for table in collection.tables],
        collection.features,
        recipe.embedding_optimizer,
        recipe.batch_size,
        Dense.of(model, len(schema.dense), recipe.dense_optimizer),
        hotness_of(schema, hotness),
        rows,
    )


def require_memory(recipe: Recipe, schema: Schema) -> None:
    """Raise ConfigError with needed and free bytes where the recipe's model cannot be trained in this process.

    Dynamic tables are taken as empty, since they grow as keys come, and ragged bags without a limit as single ids.
    """
    dynamic = {table.name: 1 for table in schema.tables if table.rows == "dynamic"}
    ragged = {f.name: 1.0 for f in schema.sparse if f.hotness is None and f.max_hotness is None}
    needs = workload(recipe, schema, ragged, dynamic)
    require_fits(needs, Plan.default(needs.tables, 1), [free_bytes() + resident_bytes()])


def _outline(recipe: Recipe, schema: Schema) -> RankingModel:
    """The recipe's model without memory for its weights, and with static tables of one row."""
    small = [table if table.rows == "dynamic" else table.model_copy(update={"rows": 1}) for table in schema.tables]
    schema = schema.model_copy(update={"tables": tuple(small)})
    with torch.device("meta"):
        return build(recipe.model.name, schema, recipe.embedding, **recipe.model.hyperparameters)
