"""A whole training run from a recipe: what `lanner train` does."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from typing import Any

from lanner import storage
from lanner.data import Dataset
from lanner.errors import ConfigError, DataError
from lanner.models import build
from lanner.train.joining import joined
from lanner.train.processes import Processes
from lanner.train.recipe import Recipe
from lanner.train.run_directory import LOCK, RunDirectory
from lanner.train.status import Status
from lanner.train.trainer import Trainer
from lanner.train.workload import require_memory


def train(recipe: Recipe, quiet: bool = False) -> dict[str, Any]:
    """Train as `recipe` says, evaluate on the test rows where there are some, and return (and write) the result.

    The same as building the model (with the recipe's seed) and a `Trainer` by hand. Raises ConfigError for a missing
    or occupied directory before anything is read. Resuming a finished run gives its result again. The processes that
    `torchrun` started train together; all get the result, and the first writes it.
    """
    if recipe.data is None:
        raise ConfigError("the recipe names no dataset: give data=DATASET")
    with ExitStack() as held, Status() as status, joined() as processes:
        if recipe.out is not None and storage.is_local(recipe.out):
            lock = storage.locked(storage.local_path(recipe.out) / LOCK, recipe.out)
            processes.first(lambda: held.enter_context(lock))
        run = None
        if recipe.out is not None:
            processes.first(lambda: _take(RunDirectory(str(recipe.out)), recipe))
            run = RunDirectory(recipe.out)
            status.begin(run, processes)
        return _train(recipe, run, processes, quiet or not processes.is_first)


def _train(recipe: Recipe, run: RunDirectory | None, processes: Processes, quiet: bool) -> dict[str, Any]:
    dataset = Dataset.open(str(recipe.data))
    if dataset.train is None or not dataset.train.rows:
        raise DataError(f"{recipe.data}: the dataset has no training rows")
    require_memory(recipe, dataset.schema, processes)
    hyperparameters = {"seed": recipe.seed, **recipe.model.hyperparameters}
    model = build(recipe.model.name, dataset.schema, recipe.embedding, **hyperparameters)
    trainer = Trainer(model, **recipe.settings, out=recipe.out, quiet=quiet)
    if run is not None:
        if recipe.resume and processes.told(run.last) is not None:
            trainer.resume(run.path)
            finished = partial(_finished, run, trainer.progress.step, quiet)
            if trainer.finished and (result := processes.told(finished)) is not None:
                return result
        processes.first(partial(storage.write_text, run.file("recipe.yaml"), recipe.to_yaml()))
    result = trainer.fit(dataset.train, dataset.valid)
    result = {**result, "test": None}
    if dataset.test is not None and result["verdict"] != "diverged":
        result["test"], result["verdict"] = trainer.assess(dataset.test)
        result["healthy"] = result["verdict"] == "ok"
    if run is not None:
        processes.first(partial(run.write_result, result))
    return result


def _finished(run: RunDirectory, step: int, quiet: bool) -> dict[str, Any] | None:
    """The result of a run that ended at `step`; None when it was never written."""
    if not quiet:
        print(f"already finished at step {step}; raise epochs or max_steps to go on", file=sys.stderr)
    result = run.read_result()
    return result if result is not None and result["train"]["steps"] == step else None


def _take(run: RunDirectory, recipe: Recipe) -> None:
    """Make sure that the directory holds no run, or the one to go on with."""
    if not recipe.resume and storage.exists(run.file("recipe.yaml")):
        if not recipe.overwrite:
            raise ConfigError(
                f"{recipe.out}: holds a run already; go on with resume=true, or replace it: overwrite=true"
            )
        run.clear()
