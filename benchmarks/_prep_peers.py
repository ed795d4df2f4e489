"""How others prepare Criteo text: the contenders of `prep.py` beside ours.

Each reads the text and writes labels, numbers and ids to `out / "all.parquet"` (the script to npz files); those that do
not keep the order of the rows write their number as `place`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

NUMERIC, CATEGORICAL, MIN_COUNT = 13, 26, 15


def _names() -> list[str]:
    return ["label", *(f"I{k + 1}" for k in range(NUMERIC)), *(f"C{k + 1}" for k in range(CATEGORICAL))]


def _scan(text: Path):
    import polars as pl

    names = _names()
    types = [pl.UInt8, *[pl.Int64] * NUMERIC, *[pl.String] * CATEGORICAL]
    return pl.scan_csv(text, separator="\t", has_header=False, schema=dict(zip(names, types, strict=True)))


def _numbers():
    import polars as pl

    return [pl.col(f"I{k + 1}").fill_null(0).clip(0).log1p().cast(pl.Float32) for k in range(NUMERIC)]


def _train_rows(frame) -> int:
    import polars as pl

    rows = frame.select(pl.len()).collect().item()
    return rows - rows // 10


def run_polars(text: Path, out: Path) -> None:
    """The straightforward way: 26 counts over the text, 26 joins, one streamed Parquet file."""
    import polars as pl

    frame = _scan(text)
    train = _train_rows(frame)
    frame = frame.with_columns(pl.col(f"C{k + 1}").str.to_integer(base=16, dtype=pl.UInt32) for k in range(CATEGORICAL))
    columns = [f"C{k + 1}" for k in range(CATEGORICAL)]
    counts = pl.collect_all([_counts(frame.head(train), column) for column in columns])
    for column, table in zip(columns, counts, strict=True):
        ids = table.lazy().select(column, pl.int_range(1, table.height + 1, dtype=pl.UInt32).alias("id"))
        frame = frame.join(ids, on=column, how="left", maintain_order="left")
        frame = frame.with_columns(pl.col("id").fill_null(0).alias(column)).drop("id")
    frame.with_columns(_numbers()).sink_parquet(out / "all.parquet")


def _counts(frame, column: str):
    import polars as pl

    counted = frame.select(column).drop_nulls().group_by(column).len("count").filter(pl.col("count") >= MIN_COUNT)
    return counted.sort(["count", column], descending=[True, False])


def run_polars_staged(text: Path, out: Path) -> None:
    """The better way: typed Parquet once, then pruned scans; ids by sorted search in NumPy."""
    import polars as pl

    columns = [f"C{k + 1}" for k in range(CATEGORICAL)]
    typed = [pl.col(column).str.to_integer(base=16, dtype=pl.UInt32) for column in columns]
    _scan(text).with_columns(typed).sink_parquet(out / "staged.parquet", compression="lz4")
    staged = pl.scan_parquet(out / "staged.parquet")
    train = _train_rows(staged)
    mapped = [_searched(_counts(staged.head(train), column).collect(), column) for column in columns]
    staged.with_columns(*_numbers(), *mapped).sink_parquet(out / "all.parquet")
    (out / "staged.parquet").unlink()


def _searched(counts, column: str):
    import polars as pl

    values = counts[column].to_numpy()
    order = np.argsort(values)
    ascending, ids = values[order], (order + 1).astype(np.uint32)

    def search(series):
        keys = series.fill_null(0).to_numpy()
        at = np.minimum(np.searchsorted(ascending, keys), max(len(ascending) - 1, 0))
        found = (ascending[at] == keys) & ~series.is_null().to_numpy() if len(ascending) else np.zeros(len(keys), bool)
        return pl.Series(np.where(found, ids[at] if len(ids) else 0, 0).astype(np.uint32))

    return pl.col(column).map_batches(search, return_dtype=pl.UInt32, is_elementwise=True)


def run_duckdb(text: Path, out: Path) -> None:
    """Text once into a typed table on disk, a table of ids for each column, 26 joins to one Parquet file."""
    import duckdb

    keys = [f"C{k + 1}" for k in range(CATEGORICAL)]
    with duckdb.connect(str(out / "staged.duckdb")) as base:
        types = dict.fromkeys(_names(), "BIGINT") | dict.fromkeys(keys, "VARCHAR")
        typed = ", ".join(f"('0x' || {key})::UINTEGER AS {key}" for key in keys)
        base.execute(
            f"CREATE TABLE logs AS SELECT * REPLACE ({typed}) FROM read_csv($text, delim='\t', header=false, "
            "nullstr='', auto_detect=false, quote='', escape='', columns=$types)",
            {"text": str(text), "types": types},
        )
        rows = base.execute("SELECT count(*) FROM logs").fetchone()[0]
        for key in keys:
            base.execute(
                f"CREATE TABLE ids_{key} AS SELECT {key} AS value, "
                f"(row_number() OVER (ORDER BY count(*) DESC, {key}))::UINTEGER AS id FROM logs "
                f"WHERE rowid < {rows - rows // 10} AND {key} IS NOT NULL GROUP BY {key} HAVING count(*) >= {MIN_COUNT}"
            )
        numbers = ", ".join(f"ln(1 + greatest(coalesce(I{k + 1}, 0), 0))::FLOAT AS I{k + 1}" for k in range(NUMERIC))
        ids = ", ".join(f"coalesce(ids_{key}.id, 0)::UINTEGER AS {key}" for key in keys)
        joins = " ".join(f"LEFT JOIN ids_{key} ON logs.{key} = ids_{key}.value" for key in keys)
        base.execute(
            f"COPY (SELECT logs.rowid AS place, label, {numbers}, {ids} FROM logs {joins}) "
            f"TO '{out / 'all.parquet'}' (FORMAT parquet)"
        )
    (out / "staged.duckdb").unlink()


def run_spark(text: Path, out: Path) -> None:
    """`local[2]`, as NVIDIA's script does it: all columns counted by one explode, ids joined by broadcast."""
    from pyspark.sql import SparkSession, Window
    from pyspark.sql import functions as f
    from pyspark.storagelevel import StorageLevel

    settings = {
        "spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "8", "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR",
    }  # fmt: skip
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    keys = [f"C{k + 1}" for k in range(CATEGORICAL)]
    kinds = ", ".join(f"{name} {'string' if name in keys else 'bigint'}" for name in _names())
    logs = session.read.csv(str(text), sep="\t", schema=kinds)
    place = f.monotonically_increasing_id()
    typed = [f.conv(key, 16, 10).cast("bigint").alias(key) for key in keys]
    logs.select(place.alias("at"), *_names()[: 1 + NUMERIC], *typed).write.parquet(str(out / "staged"))
    logs = session.read.parquet(str(out / "staged"))
    # Partition in the upper bits, row within it in the lower: numbers without gaps need the sizes of the partitions.
    sizes = logs.groupBy(f.shiftright("at", 33).alias("part")).count().orderBy("part").collect()
    starts, rows = {}, 0
    for part, count in sizes:
        starts[part], rows = rows, rows + count
    offsets = f.create_map(*(f.lit(x) for item in starts.items() for x in item))
    logs = logs.withColumn("place", offsets[f.shiftright("at", 33)] + f.col("at") % (1 << 33))
    train = logs.filter(f.col("place") < rows - rows // 10)
    cells = train.select(f.posexplode(f.array(*keys)).alias("column", "value")).dropna()
    counts = cells.groupBy("column", "value").count().filter(f.col("count") >= MIN_COUNT)
    order = Window.partitionBy("column").orderBy(f.desc("count"), "value")
    ids = counts.withColumn("id", f.row_number().over(order)).persist(StorageLevel.MEMORY_AND_DISK)
    for number, key in enumerate(keys):
        own = ids.filter(f.col("column") == number).select(f.col("value").alias(key), f.col("id").alias(f"id_{key}"))
        logs = logs.join(f.broadcast(own), key, "left")
    numbers = [
        f.log1p(f.greatest(f.coalesce(f"I{k + 1}", f.lit(0)), f.lit(0))).cast("float").alias(f"I{k + 1}")
        for k in range(NUMERIC)
    ]
    found = [f.coalesce(f"id_{key}", f.lit(0)).cast("int").alias(key) for key in keys]
    logs.select("place", "label", *numbers, *found).write.parquet(str(out / "all.parquet"))
    ids.unpersist()
    shutil.rmtree(out / "staged")


def run_script(text: Path, out: Path) -> None:
    """Line by line: split, int(x, 16), dicts of the values seen, then one dict lookup a cell; npz files."""
    with text.open() as source:
        lines = sum(1 for _ in source)
    y = np.zeros(lines, np.int32)
    numbers = np.zeros((lines, NUMERIC), np.int32)
    categories = np.zeros((lines, CATEGORICAL), np.int64)
    with text.open() as source:
        for i, line in enumerate(source):
            cells = [cell or "0" for cell in line.rstrip("\n").split("\t")]
            y[i] = int(cells[0])
            numbers[i] = np.array(cells[1 : 1 + NUMERIC], np.int32)
            categories[i] = np.array([int(cell, 16) for cell in cells[1 + NUMERIC :]], np.int64)
    np.savez_compressed(out / "day_0.npz", X_int=numbers, X_cat_t=categories.T, y=y)
    ids = np.zeros_like(categories)
    for j in range(CATEGORICAL):
        seen: dict[int, int] = {}
        for value in categories[:, j]:
            seen[value] = 1
        for number, value in enumerate(seen):
            seen[value] = number
        for i, value in enumerate(categories[:, j]):
            ids[i, j] = seen[value]
    numbers[numbers < 0] = 0
    np.savez_compressed(out / "day_0_processed.npz", X_cat=ids, X_int=np.log(numbers + 1, dtype=np.float32), y=y)


PEERS = {
    "polars staged": run_polars_staged,
    "polars": run_polars,
    "duckdb": run_duckdb,
    "spark": run_spark,
    "script": run_script,
}
