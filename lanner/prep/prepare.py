"""`prepare`: the one call that turns raw logs into a dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from lanner.errors import ConfigError
from lanner.schema import Schema, Transform

if TYPE_CHECKING:
    from lanner.prep.conventions import Fit, Recipe
    from lanner.prep.split import Share, SplitKind
    from lanner.prep.summary import PrepSummary
    from lanner.prep.writer import DenseType

Location = str | os.PathLike[str]


def prepare(
    files: Location | Sequence[Location],
    out: Location,
    source: str = "criteo",
    schema: Schema | Location | None = None,
    *,
    recipe: Recipe = "lanner",
    split: SplitKind | None = None,
    valid: Share = None,
    test: Share = None,
    seed: int = 0,
    fit: Fit | None = None,
    shuffle: bool | None = None,
    tolerant: bool = False,
    rows: int | None = None,
    min_count: int | Mapping[str, int] | None = None,
    max_size: int | None = None,
    unknown_buckets: int | None = None,
    hash_size: int | None = None,
    keys: bool = False,
    transform: Transform | None = None,
    using: Location | None = None,
    dense_type: DenseType = "float32",
    memory: str | int = "2GB",
    overwrite: bool = False,
    scratch: str | None = None,
    quiet: bool = False,
    engine: Literal["local", "spark"] = "local",
    master: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    **reading: Any,
) -> PrepSummary:
    """Read raw logs, fit vocabularies and statistics on the training rows, and write a dataset directory.

    Args:
        files: files and globs, local or on any fsspec URI, read in this order.
        out: the dataset directory, local or any fsspec URI. Its manifest is written last.
        source: `criteo`, `csv`, `parquet` or `json` (an object a line).
        schema: what the columns are; a file or a `Schema`. Criteo logs have a default.
        recipe: the convention that says what is not said here; see `lanner.prep.conventions`.
        split, valid, test, seed: see `lanner.prep.split`; by default the last tenth of the rows is for test and the
            tenth before it for validation.
        fit: `train` (default) counts values on training rows only; `all` on all rows, as the recipes of others do
            (validation and test then know the future).
        shuffle: put the training rows in random order by `seed`; by default they stay in the order of the input.
        tolerant: drop bad rows and keep them in `rejects.tsv`, instead of stopping at the first file with any.
        rows: stop after that many rows.
        min_count, max_size, unknown_buckets: of every vocabulary (the schema's own where None; 15 for Criteo).
            `min_count` may also be a mapping from names of tables, "*" for all others.
        hash_size: hash every vocabulary feature into that many ids instead.
        keys: give every vocabulary feature 64-bit hashes for ids instead, for dynamic tables.
        transform: of every number (`log1p_clip0` for Criteo).
        using: an older dataset, whose schema and vocabularies are used as they are: nothing is fitted, and without
            a `split` all rows go to test.
        dense_type: `float32` or `float16`.
        memory: what the blocks underway and the counts of values may take, such as "2GB". Tables with more distinct
            values than fit are counted in several passes. The vocabularies themselves come on top (about 40 bytes a
            value that is kept), the size of the files does not matter.
        overwrite: replace a finished dataset in `out`.
        scratch: local folder for the staged copy of the input (0.5 to 0.8 of its size); default inside `out`.
        engine: `local` threads, or `spark`: the same dataset, byte by byte, made by the workers of a Spark cluster.
        master, spark_conf: of the Spark that is started; by default the running one, else `local[*]`.
        reading: fields of `lanner.prep.sources.ReadOptions`: labelled, delimiter, numeric, categorical, time,
            header, names, null, strip.

    Returns what was read, dropped and defaulted. A run that was interrupted, or stopped at a bad file, reads only
    what it had not finished when it is started again. Raises ConfigError or SchemaError before anything is read,
    DataError for bad input: nothing is published then.
    """
    from lanner.prep import engine as engines
    from lanner.prep.choices import Choices
    from lanner.prep.conventions import convention
    from lanner.prep.plan import make_plan
    from lanner.prep.split import SplitPlan

    if engine not in ("local", "spark"):
        raise ConfigError(f"engine {engine!r}: expected local or spark")
    if engine == "local" and (master or spark_conf):
        raise ConfigError("master and spark_conf are of the engine spark")
    named = convention(recipe)
    whole = split is None and valid is None and test is None
    parts = named.split if whole else SplitPlan(split, valid, test, seed)
    if using is not None and whole:
        parts = SplitPlan("none", into="test")
    choices = Choices(min_count, max_size, unknown_buckets, hash_size, keys, transform)
    plan = make_plan(
        [os.fspath(file) for file in ([files] if isinstance(files, str | os.PathLike) else files)],
        os.fspath(out),
        source,
        schema,
        split=parts,
        choices=choices.over(named.choices),
        memory=memory,
        reading=reading,
        fit=named.fit if fit is None else fit,
        shuffle=seed if (named.shuffle if shuffle is None else shuffle) else None,
        recipe=recipe,
        strict=not tolerant,
        rows=rows,
        dense_type=dense_type,
        using=None if using is None else os.fspath(using),
    )
    if engine == "local":
        return engines.run(plan, overwrite=overwrite, quiet=quiet, scratch=scratch)
    from lanner.prep.spark.session import spark_context
    from lanner.prep.spark.workers import SparkWorkers

    with spark_context(master, spark_conf or {}, quiet) as context:
        workers = partial(SparkWorkers, context)
        return engines.run(plan, overwrite=overwrite, quiet=quiet, scratch=scratch, workers=workers)
