"""What a recipe asks of memory and processors, known before anything of its size is allocated."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

import torch

from lanner.embedding import Backing, tables
from lanner.embedding.device import HOST, device_of, require_held
from lanner.embedding.planner import Dense, Workload, hotness_of, memory, require_fits
from lanner.embedding.planner.free_memory import free_bytes, resident_bytes
from lanner.embedding.sharding.placement import Plan
from lanner.errors import ConfigError
from lanner.models import RankingModel, build
from lanner.schema import Schema
from lanner.train.processes import Processes
from lanner.train.recipe import Recipe


def workload(
    recipe: Recipe,
    schema: Schema,
    hotness: Mapping[str, float] | None = None,
    rows: Mapping[str, int] | None = None,
    samples: int | None = None,
) -> Workload:
    """What one step of `recipe` on data of `schema` is made of.

    `hotness` gives ids of a sample by feature where the schema's own is not to be taken, `rows` the expected rows by
    dynamic table, `samples` the number of training rows, where it is known. Raises ConfigError where somebody has to
    say one of the first two, or a name is not there.
    """
    model = _outline(recipe, schema)
    sizes = {table.name: table.rows for table in tables.from_schema(schema, 1)[0]}
    collection = model.embedding
    needs = Workload.of(
        [replace(table, rows=sizes[table.name]) for table in collection.tables],
        collection.features,
        recipe.embedding_optimizer,
        recipe.batch_size,
        Dense.of(model, len(schema.dense), recipe.dense_optimizer),
        hotness_of(schema, hotness),
        rows,
        samples,
    )
    budget = recipe.embedding.memory
    return replace(needs, backing=None if budget is None else Backing(budget))  # the directory may be elsewhere


def require_memory(recipe: Recipe, schema: Schema, processes: Processes) -> None:
    """Raise ConfigError with needed and free bytes where the recipe's model cannot be trained by these processes.

    Memory is that of the recipe's device; processes on one machine share what is free there. Dynamic tables are taken
    as empty, since they grow as keys come, and ragged bags without a limit as single ids.
    """
    dynamic = {table.name: 1 for table in schema.tables if table.rows == "dynamic"}
    ragged = {f.name: 1.0 for f in schema.sparse if f.hotness is None and f.max_hotness is None}
    needs = workload(recipe, schema, ragged, dynamic, samples=0)
    device = device_of(recipe.device)
    static = [table for table in needs.tables if table.rows != "dynamic"]
    on_disk = needs.backing is not None and bool(needs.backing.chosen(static))
    require_held(device, needs.tables, on_disk, several=processes.world_size > 1)
    plan = recipe.embedding.load_plan() or Plan.default(needs.tables, processes.world_size)
    if plan.world_size != processes.world_size:
        raise ConfigError(
            f"plan: it is for {plan.world_size} processes, but {processes.world_size} are running; "
            f"start them with torchrun --nproc-per-node {plan.world_size}"
        )
    plan.check(needs.tables)
    if device != HOST:
        require_fits(needs, plan, [torch.cuda.mem_get_info(device)[0]])
        return
    bytes_of = memory.needed(needs, plan).sum(0)
    here = _neighbours(processes)
    free = free_bytes() + int(processes.numbers(resident_bytes())[here].sum())
    shares = (free * bytes_of / bytes_of[here].sum()).astype(int).tolist()
    require_fits(needs, plan, shares, here)


def _neighbours(processes: Processes) -> list[int]:
    """The ranks on this machine, as `torchrun` numbers them."""
    if processes.world_size == 1:
        return [0]
    first = processes.rank - int(os.environ.get("LOCAL_RANK", "0"))
    return list(range(first, first + int(os.environ.get("LOCAL_WORLD_SIZE", processes.world_size))))


def _outline(recipe: Recipe, schema: Schema) -> RankingModel:
    """The recipe's model without memory for its weights, and with static tables of one row."""
    small = [table if table.rows == "dynamic" else table.model_copy(update={"rows": 1}) for table in schema.tables]
    schema = schema.model_copy(update={"tables": tuple(small)})
    with torch.device("meta"):
        return build(recipe.model.name, schema, recipe.embedding.lasting(), **recipe.model.hyperparameters)
