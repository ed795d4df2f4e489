"""`lanner prep`: raw logs to a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lanner.cli.console import Json, people, print_json, print_table, usage
from lanner.errors import ConfigError

if TYPE_CHECKING:
    from lanner.prep.summary import PrepSummary

Option = typer.Option


def prep(
    files: Annotated[list[str], typer.Argument(help="Files and globs, local or any fsspec URI, read in this order.")],
    out: Annotated[str | None, Option(help="Dataset directory to write, local or any fsspec URI.")] = None,
    infer: Annotated[
        bool, Option("--infer", help="Print a schema guessed from the first file, to be edited, and do nothing else.")
    ] = False,
    source: Annotated[Literal["criteo", "csv", "parquet", "json"], Option(help="Kind of input.")] = "criteo",
    schema: Annotated[str | None, Option(help="Schema file (YAML); Criteo logs have a default.")] = None,
    recipe: Annotated[
        Literal["lanner", "nvidia-dlrm", "facebook-dlrm", "mlperf-dlrm"],
        Option(help="Convention that says what is not said here: transform, ids, fit, split, shuffle."),
    ] = "lanner",
    split: Annotated[
        Literal["none", "sequential", "random", "time", "file", "day"] | None, Option(help="[default: sequential]")
    ] = None,
    valid: Annotated[
        str | None, Option(help="Fraction, number of rows, start time, glob or half of the last day [default: 0.1].")
    ] = None,
    test: Annotated[str | None, Option(help="The same for the test split [default: 0.1].")] = None,
    seed: Annotated[int, Option(help="Seed of a random split and of the shuffle.")] = 0,
    shuffle: Annotated[
        bool | None, Option(help="Put the training rows in random order [default: in input order].")
    ] = None,
    time: Annotated[str | None, Option(help="Time column, for a split by time and for histories.")] = None,
    fit: Annotated[
        Literal["train", "all"] | None,
        Option(help="Count values on the training rows only (train) or on all rows (all) [default: train]."),
    ] = None,
    tolerant: Annotated[bool, Option("--tolerant", help="Drop bad rows to rejects.tsv instead of stopping.")] = False,
    rows: Annotated[int | None, Option(min=1, help="Stop after this many rows.")] = None,
    min_count: Annotated[
        str | None,
        Option(help="Values seen less often share the unknown id [default: 15]; for single tables: 15,C3=5."),
    ] = None,
    max_size: Annotated[int | None, Option(help="Keep only the most frequent values of each table.")] = None,
    unknown_buckets: Annotated[int | None, Option(help="Ids that unknown values are hashed to.")] = None,
    hash_size: Annotated[int | None, Option(help="Hash into this many ids, without vocabularies.")] = None,
    keys: Annotated[bool, Option("--keys", help="64-bit hashes for dynamic tables, without vocabularies.")] = False,
    transform: Annotated[str | None, Option(help="Transform of every number [default: log1p_clip0].")] = None,
    using: Annotated[str | None, Option(help="Encode with the schema and vocabularies of this dataset.")] = None,
    dense_type: Annotated[Literal["float32", "float16"], Option(help="Type of the stored numbers.")] = "float32",
    labelled: Annotated[bool, Option(help="Whether the input has its label columns.")] = True,
    numeric: Annotated[int, Option(help="criteo: number of integer columns.")] = 13,
    categorical: Annotated[int, Option(help="criteo: number of hexadecimal columns.")] = 26,
    delimiter: Annotated[str | None, Option(help="Byte between fields [default: tab for criteo, comma].")] = None,
    header: Annotated[bool, Option(help="csv: the first line names the columns.")] = True,
    names: Annotated[
        str | None, Option(help="csv without header: column names, comma-separated; tag*50 is a list of 50 fields.")
    ] = None,
    null: Annotated[list[str] | None, Option(help="csv: a text that means missing; may be repeated.")] = None,
    strip: Annotated[bool, Option("--strip", help="csv: drop blanks around values.")] = False,
    join: Annotated[
        list[str] | None,
        Option(help="csv, parquet, json: KEY=FILE, columns of a side table by a key column; may be repeated."),
    ] = None,
    memory: Annotated[str, Option(help="Memory for the blocks underway.")] = "2GB",
    scratch: Annotated[str | None, Option(help="Local folder for staged rows [default: inside the output].")] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace a finished dataset.")] = False,
    engine: Annotated[
        Literal["local", "spark"], Option(help="Who does the work; the dataset is the same, byte by byte.")
    ] = "local",
    master: Annotated[
        str | None, Option(help="spark: master URL [default: spark-submit's, or all cores of this machine].")
    ] = None,
    spark_conf: Annotated[list[str] | None, Option(help="spark: a setting, key=value; may be repeated.")] = None,
    json: Json = False,
) -> None:
    """Turn raw logs into a dataset: ids by frequency from the training rows, transformed numbers, splits.

    Example: lanner prep --source criteo day_0.gz day_1.gz --out criteo --valid 0.1 --test 0.1

    On Spark: lanner prep "hdfs_mount/day_*" --out shared/criteo --engine spark --master yarn

    A schema to begin with: lanner prep --infer logs.csv > schema.yaml

    As NVIDIA does: lanner prep --recipe nvidia-dlrm "day_*" --out criteo --min-count 15,C3=5
    """
    from lanner.prep import prepare
    from lanner.prep.plan import memory_bytes
    from lanner.prep.split import SplitPlan

    reading: dict[str, Any] = {
        "time": time, "labelled": labelled, "numeric": numeric, "categorical": categorical, "header": header,
        "strip": strip, "delimiter": None if delimiter is None else delimiter.replace("\\t", "\t"),
        "names": column_names(names) if names else (),
    }  # fmt: skip
    if join:
        reading["join"] = tuple(join)
    if null:
        reading["null"] = tuple(null)
    if infer:
        _print_guess(files, reading)
        return
    with usage():
        if out is None:
            raise ConfigError("missing option --out")
        least = counts_by_table(min_count)
        SplitPlan(split, share(split, valid), share(split, test), seed)
        memory_bytes(memory)
        spark: dict[str, Any] = {"engine": engine, "master": master, "spark_conf": spark_settings(spark_conf or [])}
    choices: dict[str, Any] = {
        "recipe": recipe, "shuffle": shuffle, "split": split,
        "valid": share(split, valid), "test": share(split, test), "seed": seed, "fit": fit,
        "min_count": least, "max_size": max_size, "unknown_buckets": unknown_buckets, "hash_size": hash_size,
        "keys": keys, "transform": transform, "dense_type": dense_type,
    }  # fmt: skip
    try:
        summary = prepare(
            files, out, source, schema, tolerant=tolerant, rows=rows, using=using, memory=memory, overwrite=overwrite,
            scratch=scratch, **spark, **choices, **reading,
        )  # fmt: skip
    except KeyboardInterrupt:
        people.print("interrupted; run the same command again to go on")
        raise typer.Exit(130) from None
    if json:
        print_json(summary.to_dict())
    else:
        _report(summary)


def _print_guess(files: list[str], reading: dict[str, Any]) -> None:
    from lanner import storage
    from lanner.prep.infer import infer
    from lanner.prep.sources import ReadOptions

    typer.echo(infer(storage.expand(files)[0], ReadOptions(**reading)), nl=False)


def counts_by_table(text: str | None) -> int | dict[str, int] | None:
    """`15`, or `15,C3=5,C7=2`: a number for all tables and others for single ones. Raises ConfigError."""
    if text is None:
        return None
    parts = [part.rpartition("=") for part in text.split(",")]
    try:
        counts = {name.strip() or "*": int(count) for name, _, count in parts}
    except ValueError:
        raise ConfigError(f"min_count {text!r}: expected a number, or like 15,C3=5") from None
    return counts["*"] if list(counts) == ["*"] else counts


def column_names(text: str) -> tuple[str, ...]:
    """`a,b*3,c`: names, where b stands for three fields."""
    parts = [part.rpartition("*") for part in text.split(",")]
    return tuple(
        name
        for head, star, tail in parts
        for name in ([head] * int(tail) if star and tail.isdecimal() else [head + star + tail])
    )


def spark_settings(given: list[str]) -> dict[str, str]:
    """`key=value` pairs. Raises ConfigError for one that is none."""
    pairs = [pair.partition("=") for pair in given]
    if wrong := next((pair for pair in pairs if not pair[0] or not pair[1]), None):
        raise ConfigError(f"spark-conf {''.join(wrong)!r}: expected key=value")
    return {key: value for key, _, value in pairs}


def share(split: str | None, text: str | None) -> float | int | str | None:
    """`text` as a fraction or a number of rows, except for splits by time, file and day, which take text."""
    if text is None or split in ("time", "file", "day"):
        return text
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _report(summary: PrepSummary) -> None:
    heads, rows = summary.table()
    print_table("shares of missing values, and of values without an id of their own", heads, rows)
    for reason, count in summary.rejected.items():
        people.print(f"dropped {count:,} rows: {reason} (see rejects.tsv)")
    if summary.unmatched:
        people.print(f"{summary.unmatched:,} keys have no row in a side table: their columns are missing")
    parts = ", ".join(f"{name} {count:,}" for name, count in summary.rows.items())
    people.print(f"{summary.total_rows:,} rows ({parts}) in {summary.seconds:.1f} s → {summary.out}")
