"""MovieLens 100k as one CSV file: `python examples/movielens/prepare.py OUT_DIR [--cache DIR]`.

The data (100,000 ratings of 1,682 films by 943 users, 1997-98) come from the text files inside the PyPI wheel
recbole 1.2.1, which pip downloads once (2 MB) and which is kept in the cache folder. GroupLens allows research use
and forbids redistribution, so neither the wheel nor the CSV belongs in a repository.

OUT_DIR/movielens.csv has one line a rating, in order of time:

    timestamp   seconds since 1970, UTC
    user, item  as numbered by MovieLens
    rating      1 to 5
    age, gender, occupation, zip    of the user; zip is the first digit, or a letter outside the USA
    age_group   age in steps of five years
    year        in which the film came out, empty where it is not known
    genres      of the film, parted by "|"
    user_seen   how many films the user had rated before this one
    item_seen   how many users had rated the film before this one
    gap         seconds since the user's last rating, empty for the first one

The last three use only what was known before the rating was given, and no rating at all: nothing leaks back in time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import zipfile
from pathlib import Path

import polars as pl

from lanner import storage
from lanner.errors import DataError

PACKAGE = "recbole"
VERSION = "1.2.1"
WHEEL = f"{PACKAGE}-{VERSION}-py3-none-any.whl"
INSIDE = "recbole/dataset_example/ml-100k/ml-100k"
RATINGS, USERS, ITEMS = 100_000, 943, 1_682


def main() -> None:
    parser = argparse.ArgumentParser(description="Write MovieLens 100k as OUT_DIR/movielens.csv.")
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "lanner", metavar="DIR")
    arguments = parser.parse_args()
    try:
        prepare(arguments.out, arguments.cache)
    except DataError as error:
        sys.exit(f"error: {error}")


def prepare(out: Path, cache: Path) -> Path:
    """Fetch, join, check and write; returns the CSV's path. Raises DataError when a step cannot be done."""
    wheel = fetch(cache)
    ratings, users, items = (read(wheel, part) for part in ("inter", "user", "item"))
    print(f"read {ratings.height:,} ratings, {users.height:,} users, {items.height:,} films")
    table = add_history(join(ratings, users, items))
    check(table)
    path = out / "movielens.csv"
    with storage.publish(path) as file:
        table.write_csv(file)
    positive = (table["rating"] >= 4).mean()
    print(f"wrote {path}: {table.height:,} rows x {table.width} columns, {positive:.1%} with rating >= 4")
    return path


def fetch(cache: Path) -> Path:
    """The wheel in the cache folder, downloaded by pip when it is not there."""
    wheel = cache / WHEEL
    if wheel.exists():
        print(f"found {wheel}")
        return wheel
    print(f"downloading {WHEEL} to {cache}")
    cache.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(cache), f"{PACKAGE}=={VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not wheel.exists():
        reason = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise DataError(
            f"pip cannot download {PACKAGE}=={VERSION}: {reason}. Without a network, put {WHEEL} into {cache}, "
            "or use generated data instead: DATA=synth"
        )
    return wheel


def read(wheel: Path, part: str) -> pl.DataFrame:
    """One table of the wheel, all columns as text and named without their types (`age:token` is `age`)."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            text = archive.read(f"{INSIDE}.{part}")
    except (zipfile.BadZipFile, KeyError) as error:
        raise DataError(f"{wheel}: not the expected file ({error}); remove it and run again") from error
    table = pl.read_csv(text, separator="\t", infer_schema=False, quote_char=None)
    return table.rename(lambda name: name.partition(":")[0])


def join(ratings: pl.DataFrame, users: pl.DataFrame, items: pl.DataFrame) -> pl.DataFrame:
    """One row a rating with its user's and its film's columns, in order of time (ties by user and film)."""
    year = pl.col("release_year").cast(pl.Int32, strict=False)
    films = items.select("item_id", year.alias("year"), pl.col("class").str.replace_all(" ", "|"))
    people = users.with_columns(
        pl.col("age").cast(pl.Int32),
        pl.col("zip_code").str.head(1),
        (pl.col("age").cast(pl.Int32) // 5 * 5).alias("age_group"),
    )
    joined = ratings.join(people, on="user_id", how="left", validate="m:1").join(
        films, on="item_id", how="left", validate="m:1"
    )
    return joined.select(
        pl.col("timestamp").cast(pl.Float64).cast(pl.Int64),
        pl.col("user_id").cast(pl.Int32).alias("user"),
        pl.col("item_id").cast(pl.Int32).alias("item"),
        pl.col("rating").cast(pl.Float64).cast(pl.Int8),
        "age",
        "gender",
        "occupation",
        pl.col("zip_code").alias("zip"),
        "age_group",
        "year",
        pl.col("class").alias("genres"),
    ).sort("timestamp", "user", "item")


def add_history(table: pl.DataFrame) -> pl.DataFrame:
    """What was known before each rating: counts of earlier ratings and the time since the last."""
    return table.with_columns(
        pl.int_range(pl.len()).over("user").alias("user_seen"),
        pl.int_range(pl.len()).over("item").alias("item_seen"),
        pl.col("timestamp").diff().over("user").alias("gap"),
    )


def check(table: pl.DataFrame) -> None:
    """Compare the counts with those MovieLens publishes."""
    for name, seen, expected in (
        ("ratings", table.height, RATINGS),
        ("users", table["user"].n_unique(), USERS),
        ("films", table["item"].n_unique(), ITEMS),
        ("ratings without a user's age", table["age"].null_count(), 0),
        ("ratings without genres", table["genres"].null_count(), 0),
    ):
        print(f"check: {seen:,} {name}")
        if seen != expected:
            raise DataError(f"MovieLens 100k: {seen:,} {name}, expected {expected:,}")


if __name__ == "__main__":
    main()
