"""CSV and Parquet files to chunks: bad rows by line, any packing, bounded pieces."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from lanner.errors import ConfigError, DataError, SchemaError
from lanner.prep.chunk import RawChunk
from lanner.prep.counting import TableCounter
from lanner.prep.sources import BadRow, ReadOptions, open_source
from lanner.prep.vocabulary import Vocabulary
from lanner.schema import Schema, VocabEncoder

SCHEMA = Schema.parse({"labels": [{"name": "y"}], "dense": [{"name": "n"}], "sparse": [{"name": "t"}]})
ADULT = (
    "age,workclass,fnlwgt,education,education_num,marital_status,occupation,relationship,race,sex,capital_gain,"
    "capital_loss,hours_per_week,native_country,income"
)
EXAMPLES = Path(__file__).parents[2] / "examples" / "schemas"


def read(
    file: Path | str, schema: Schema = SCHEMA, kind: str = "csv", **options: Any
) -> tuple[list[RawChunk], list[BadRow]]:
    source, read_options = open_source(kind), ReadOptions(**options)
    source.check(schema, read_options)
    bad: list[BadRow] = []
    return list(source.read(str(file), schema, read_options, bad.append)), bad


def rows_of(chunks: list[RawChunk]) -> list[tuple[float, float | None, str | None]]:
    """(y, n, t) of every row."""
    found = []
    for chunk in chunks:
        texts, missing = chunk.sparse[0].texts, chunk.sparse[0].missing
        assert texts is not None and len(texts) == chunk.rows
        for row in range(chunk.rows):
            number = chunk.dense[row, 0]
            text = None if missing is not None and missing[row] else texts[row].as_py()
            found.append((float(chunk.labels[row, 0]), None if np.isnan(number) else float(number), text))
    return found


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


TEXT = 'id,t,n,y\n1,"a, b",1.5,1\n2,"say ""hi""",,0\n3,,-2e3,1\n4,"two\nlines",7,0\n'
ROWS = [(1, 1.5, "a, b"), (0, None, 'say "hi"'), (1, -2000, None), (0, 7, "two\nlines")]


@pytest.mark.parametrize("pack", [lambda b: b, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize(
    "change", [lambda t: t, lambda t: "\ufeff" + t, lambda t: t.rstrip("\n")], ids=["as is", "BOM", "no end"]
)
@pytest.mark.parametrize("block", [16, 1 << 20])
def test_csv_in_every_packing(tmp_path: Path, pack: Any, change: Any, block: int) -> None:
    chunks, bad = read(write(tmp_path / "f", pack(change(TEXT).encode())), block_bytes=block)
    assert (rows_of(chunks), bad) == (ROWS, [])
    assert block > 16 or len(chunks) > 1


def test_csv_line_ends_delimiter_names_blanks_and_nulls(tmp_path: Path) -> None:
    text = TEXT.replace("two\nlines", "two").replace("\n", "\r\n")
    expected = [*ROWS[:3], (0, 7, "two")]
    assert rows_of(read(write(tmp_path / "crlf.csv", text))[0]) == expected
    file = write(tmp_path / "f.txt", "1 ; 2.5;\tx\n0; ?; NA \n\n1;;\n")
    chunks, bad = read(file, delimiter=";", header=False, names=("y", "n", "t"), strip=True, null=("?", "NA"))
    assert (rows_of(chunks), bad) == ([(1, 2.5, "x"), (0, None, None), (1, None, None)], [])


def test_bad_rows_are_reported_by_line_and_left_out(tmp_path: Path) -> None:
    lines = [b"y,n,t", b"1,2,good", b"1,2", b'0,1,"two', b'lines"', b"", b"1,2,3,4", b"2,1,x", b"0,abc,x", b'1,1,"a"b']
    lines += [b"1,inf,x", b"1,2,\xff", b"0,3,last"]
    chunks, bad = read(write(tmp_path / "f.csv", b"\n".join(lines)))
    assert rows_of(chunks) == [(1, 2, "good"), (0, 1, "two\nlines"), (0, 3, "last")]
    assert [(row.line, row.reason) for row in bad] == [
        (3, "fields"), (7, "fields"), (8, "label"), (9, "number"), (10, "quotes"), (11, "number"), (12, "encoding"),
    ]  # fmt: skip
    assert bad[0].message == "2 fields, expected 3" and bad[0].text == "1,2"
    assert "'2' is not 0 or 1" in bad[2].message and "'abc' is not a finite number" in bad[3].message


def test_labels_are_strict_by_line(tmp_path: Path) -> None:
    labels = ["0", "1", "", "false", "2", "-1", "0.3"]
    file = write(tmp_path / "f.csv", "y,n,t\n" + "".join(f"{label},1,x\n" for label in labels))
    chunks, bad = read(file)
    assert [row[0] for row in rows_of(chunks)] == [0, 1]
    assert [row.line for row in bad] == [4, 5, 6, 7, 8] and {row.reason for row in bad} == {"label"}
    for row, label in zip(bad[1:], labels[3:], strict=True):
        assert repr(label) in row.message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": "::"}, "delimiter '::'"),
        ({"delimiter": '"'}, "delimiter"),
        ({"header": False}, "needs the names"),
        ({"names": ("y", "n", "t")}, "header"),
        ({"header": False, "names": ("y", "n")}, "no column 't' among"),
    ],
)
def test_options_are_checked_before_reading(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_source("csv").check(SCHEMA, ReadOptions(**options))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"f\.csv: no column 'n', 't'; there are y, x"):
        read(write(tmp_path / "f.csv", "y,x\n1,2\n"))
    with pytest.raises(DataError, match="column 'y' is there 2 times"):
        read(write(tmp_path / "f.csv", "y,n,t,y\n1,2,3,4\n"))
    with pytest.raises(DataError, match="line 3: a quote is opened"):
        read(write(tmp_path / "f.csv", 'y,n,t\n1,1,x\n1,1,"open\n1,1,x\n'))
    whole = gzip.compress(b"y,n,t\n" + b"1,2,some text\n" * 50_000)
    with pytest.raises(DataError, match=r"f\.csv: .*rows could be read before the break"):
        read(write(tmp_path / "f.csv", whole[:-10]))
    pq.write_table(pa.table({"y": [1], "z": [1]}), tmp_path / "f.parquet")
    with pytest.raises(DataError, match=r"f\.parquet: no column 'n', 't'; there are y, z"):
        read(tmp_path / "f.parquet", kind="parquet")
    with pytest.raises(DataError, match=r"g\.parquet"):
        read(write(tmp_path / "g.parquet", b"not parquet at all"), kind="parquet")


def test_a_file_that_is_no_csv_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "long.csv", "\n" + "x" * 200_000)
    with pytest.raises(DataError, match=r"long.csv: line 2 is no line of column names: field larger"):
        read(file)


def test_files_without_rows(tmp_path: Path) -> None:
    for text in ("y,n,t\n", "y,n,t", "", "\n\n"):
        assert sum(chunk.rows for chunk in read(write(tmp_path / "f.csv", text))[0]) == 0


def test_the_header_may_come_after_empty_lines(tmp_path: Path) -> None:
    chunks, bad = read(write(tmp_path / "f.csv", "\n" * 40 + "y,n,t\n1,1,x\n1,x,x\n"), block_bytes=16)
    assert rows_of(chunks) == [(1, 1, "x")] and bad[0].line == 43


def parquet(path: Path, table: dict[str, Any] | pa.Table, **options: Any) -> Path:
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path, **options)
    return path


def test_parquet_with_empty_groups_and_pages(tmp_path: Path) -> None:
    ten = pa.table(
        {"y": pa.array([k % 2 for k in range(10)]), "n": [float(k) for k in range(10)], "t": list("abcdefghij")}
    )
    expected = [(k % 2, float(k), "abcdefghij"[k]) for k in range(10)]
    assert read(parquet(tmp_path / "none.parquet", ten.slice(0, 0)), kind="parquet")[0] == []
    with pq.ParquetWriter(tmp_path / "empty.parquet", ten.schema) as writer:
        writer.write_table(ten.slice(0, 0))
    assert sum(chunk.rows for chunk in read(tmp_path / "empty.parquet", kind="parquet")[0]) == 0
    paged = parquet(tmp_path / "pages.parquet", ten, data_page_size=1, write_batch_size=4, use_dictionary=False)
    assert rows_of(read(paged, kind="parquet")[0]) == expected
    with pq.ParquetWriter(tmp_path / "mixed.parquet", ten.schema) as writer:
        for part in (ten.slice(0, 4), ten.slice(0, 0), ten.slice(4)):
            writer.write_table(part)
    assert rows_of(read(tmp_path / "mixed.parquet", kind="parquet", block_bytes=64)[0]) == expected


def test_parquet_strings_in_every_encoding_give_one_vocabulary(tmp_path: Path) -> None:
    texts = [None if k % 7 == 0 else f"t{k % 5}" for k in range(200)]
    plain = pa.array(texts)
    order = pa.array(["t4", "t3", "t2", "t1", "t0"])
    codes = pa.array([None if t is None else 4 - int(t[1]) for t in texts], pa.int32())
    columns = [
        plain,
        plain.cast(pa.large_string()),
        pa.DictionaryArray.from_arrays(codes, order),
        plain.dictionary_encode(),
    ]
    found = []
    for column in columns:
        table = pa.table({"y": [0] * 200, "n": [0.0] * 200, "t": column})
        file = parquet(tmp_path / "f.parquet", table, dictionary_pagesize_limit=16, data_page_size=64)
        counter = TableCounter("string")
        for chunk in read(file, kind="parquet", block_bytes=1000)[0]:
            counter.add(chunk.sparse[0])
        words = Vocabulary.fit(counter, VocabEncoder(min_count=1))
        found.append((words.decode(words.ids), words.counts.tolist(), words.keys.tolist()))
    assert found == [found[0]] * 4


def test_parquet_integers_keep_all_64_bits_beside_nulls(tmp_path: Path) -> None:
    schema = Schema.parse({"sparse": [{"name": "k", "raw": "int"}]})
    file = parquet(tmp_path / "f.parquet", {"k": pa.array([9007199254740993, 9007199254740992, None, 5])})
    chunks, _ = read(file, schema, "parquet")
    keys = chunks[0].sparse[0]
    assert keys.keys.tolist()[:2] == [9007199254740993, 9007199254740992] and keys.keys.dtype == np.int64
    assert keys.missing is not None and keys.missing.tolist() == [False, False, True, False]
    parquet(tmp_path / "f.parquet", {"k": pa.array([1.0, None])})
    with pytest.raises(DataError, match=r"f\.parquet.*column 'k', row 0: 1\.0.*floating-point ids are refused"):
        read(tmp_path / "f.parquet", schema, "parquet")


def test_parquet_bad_rows_are_numbered_from_one(tmp_path: Path) -> None:
    table = {"y": [1, 5, 0, None], "n": [1.0, 2.0, float("inf"), 1.0], "t": ["a", "b", "c", "d"]}
    chunks, bad = read(parquet(tmp_path / "f.parquet", table), kind="parquet", block_bytes=1)
    assert rows_of(chunks) == [(1, 1, "a")]
    assert [(row.line, row.reason) for row in bad] == [(2, "label"), (3, "number"), (4, "label")]
    assert "'t': 'b'" in bad[0].text


def test_one_row_group_is_read_in_pieces(tmp_path: Path) -> None:
    rows = 50_000
    table = {"y": np.zeros(rows, np.int8), "n": np.arange(rows, dtype=np.float64), "t": ["x"] * rows}
    file = parquet(tmp_path / "f.parquet", table, row_group_size=rows)
    chunks, _ = read(file, kind="parquet", block_bytes=1 << 16)
    assert max(chunk.rows for chunk in chunks) <= (1 << 16) // 24
    assert np.concatenate([chunk.dense[:, 0] for chunk in chunks]).tolist() == list(range(rows))


def test_lists_weight_group_and_time(tmp_path: Path) -> None:
    schema = Schema.parse(
        {
            "labels": [{"name": "y"}],
            "sparse": [{"name": "h", "raw": "int", "hotness": None, "separator": "|", "max_hotness": 2}],
            "weight": "w",
            "group": "user",
        }
    )
    text = "y,h,w,user,at\n1,1|2|3,0.5,7,2014-10-21 00:00:01\n0,,1,bob,1970-01-01\n0,4,-1,7,1970-01-01\n0,5,1,,soon\n"
    chunks, bad = read(write(tmp_path / "f.csv", text), schema, time="at")
    (chunk,) = chunks
    assert chunk.sparse[0].keys.tolist() == [2, 3] and chunk.weight is not None and chunk.group is not None
    assert chunk.weight.tolist() == [0.5, 1.0] and chunk.group[0] == 7
    assert chunk.time is not None and chunk.time.tolist() == [1413849601 * 10**6, 0] and chunk.time.dtype == np.int64
    assert [(row.line, row.reason) for row in bad] == [(4, "weight"), (5, "time")]
    stamps = pa.array([1413849601, 0], pa.timestamp("s"))
    lists = pa.array([[1, 2, 3], None], pa.list_(pa.int32()))
    table = pa.table({"y": [1, 0], "h": lists, "w": [0.5, 1.0], "user": pa.array(["7", "bob"]), "at": stamps})
    (same,) = read(parquet(tmp_path / "f.parquet", table), schema, "parquet", time="at")[0]
    for name in ("weight", "group", "time"):
        np.testing.assert_array_equal(getattr(same, name), getattr(chunk, name))
    assert same.sparse[0].keys.tolist() == [2, 3] and same.sparse[0].offsets is not None
    assert same.sparse[0].offsets.tolist() == [0, 2, 2]


def test_numeric_times_stay_exact(tmp_path: Path) -> None:
    big = 1_700_000_000_123_456_789
    for value, kind in ((str(big), np.int64), ("1.5", np.float64)):
        (chunk,) = read(write(tmp_path / "f.csv", f"y,n,t,at\n1,1,x,{value}\n"), time="at")[0]
        assert (
            chunk.time is not None and chunk.time.dtype == kind and chunk.time[0] == (big if kind is np.int64 else 1.5)
        )


def test_ids_outside_an_identity_table_are_bad_rows(tmp_path: Path) -> None:
    schema = Schema.parse({"sparse": [{"name": "d", "raw": "int", "encoder": {"kind": "identity", "size": 3}}]})
    chunks, bad = read(write(tmp_path / "f.csv", "d,x\n0,\n3,\n-1,\n,1\n2,\n"), schema)
    assert [key for chunk in chunks for key in chunk.sparse[0].keys.tolist()] == [0, 2]
    assert [(row.line, row.reason) for row in bad] == [(3, "range"), (4, "range"), (5, "range")]


def test_the_adult_files(shared_data: Path) -> None:
    schema = Schema.load(EXAMPLES / "adult.yaml")
    options = {"header": False, "names": tuple(ADULT.split(",")), "strip": True, "null": ("?",), "block_bytes": 1 << 18}
    for name, rows, share in (("adult.data.gz", 32_561, 0.2408), ("adult.test.gz", 16_281, 0.2362)):
        chunks, bad = read(shared_data / name, schema, **options)
        assert not bad and sum(chunk.rows for chunk in chunks) == rows
        assert np.concatenate([chunk.labels for chunk in chunks]).mean() == pytest.approx(share, abs=1e-4)
        missing = [np.any([k.missing for k in chunk.sparse if k.missing is not None], axis=0) for chunk in chunks]
        assert name != "adult.data.gz" or sum(int(mask.sum()) for mask in missing) == 2399


def test_the_avazu_sample(shared_data: Path) -> None:
    chunks, bad = read(shared_data / "avazu_3k.csv.gz", Schema.load(EXAMPLES / "avazu.yaml"))
    assert not bad and sum(chunk.rows for chunk in chunks) == 3000
    assert sum(chunk.labels.sum() for chunk in chunks) == 494
    with pytest.raises(SchemaError, match="reserved"):
        Schema.parse({"sparse": [{"name": "ids"}]})


def test_the_movielens_files(shared_data: Path) -> None:
    films = Schema.parse({"sparse": [{"name": "title"}, {"name": "genres", "hotness": None, "separator": "|"}]})
    chunks, bad = read(shared_data / "ml-latest-small" / "movies.csv.gz", films)
    titles = [title for chunk in chunks for title in chunk.sparse[0].texts.to_pylist()]  # type: ignore[union-attr]
    assert not bad and len(titles) == 9125
    assert titles[0] == "Toy Story (1995)" and "Usual Suspects, The (1995)" in titles
    ratings = Schema.parse(
        {
            "labels": [{"name": "liked", "column": "rating", "at_least": 4}],
            "sparse": [{"name": "user", "column": "userId", "raw": "int"}],
        }
    )
    chunks, bad = read(shared_data / "ml-latest-small" / "ratings.csv.gz", ratings, time="timestamp")
    assert not bad and sum(chunk.rows for chunk in chunks) == 100_004
    assert all(chunk.time is not None and chunk.time.min() > 7 * 10**8 for chunk in chunks)
