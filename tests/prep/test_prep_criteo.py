"""Criteo text in all the shapes it arrives in: archives, line ends, byte-order marks, other column counts."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import zstandard
from prep_logs import make_rows, published_bytes, read_split, text_of, write

from lanner.errors import DataError
from lanner.prep import prepare
from lanner.prep.sources import BadRow, ReadOptions, open_source
from lanner.prep.sources.blocks import BrokenFileError, line_blocks

ROWS = make_rows(500)
TEXT = text_of(ROWS)
PACKED = {
    "gzip": gzip.compress(TEXT, mtime=0),
    "two gzip members": gzip.compress(TEXT[:70_000]) + gzip.compress(TEXT[70_000:]),
    "zstd": zstandard.compress(TEXT),
    "two zstd frames": zstandard.compress(TEXT[:70_000]) + zstandard.compress(TEXT[70_000:]),
    "plain": TEXT,
    "plain, no last newline": TEXT[:-1],
}


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("block", [1000, 1 << 16, 1 << 23])
def test_archives_are_known_by_their_bytes_whatever_the_name(tmp_path: Path, kind: str, block: int) -> None:
    (tmp_path / "logs.bin").write_bytes(PACKED[kind])
    blocks = list(line_blocks(str(tmp_path / "logs.bin"), block, 8))
    assert b"".join(part[:-8].tobytes() for part in blocks) == TEXT


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_line_ends_and_marks_leave_no_trace(tmp_path: Path, mark: bytes, ending: str) -> None:
    write(tmp_path / "plain.tsv", ROWS)
    (tmp_path / "other.tsv").write_bytes(mark + text_of(ROWS, ending))
    for name in ("plain", "other"):
        prepare(tmp_path / f"{name}.tsv", tmp_path / name, min_count=1)
    assert published_bytes(tmp_path / "other") == published_bytes(tmp_path / "plain")


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_cut_archive_tells_the_file_and_the_rows_before_the_break(tmp_path: Path, kind: str) -> None:
    (tmp_path / "day_0").write_bytes(PACKED[kind][:-200])
    with pytest.raises(DataError, match=rf"day_0: the {kind} stream ends before .*; \d+ rows could be read") as caught:
        prepare(tmp_path / "day_0", tmp_path / "out")
    assert 0 <= int(str(caught.value).split("; ")[1].split(" ")[0]) < 500
    assert not (tmp_path / "out" / "train").exists()


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    broken = bytearray(PACKED["gzip"])
    broken[len(broken) // 2] ^= 0xFF
    (tmp_path / "day_0").write_bytes(bytes(broken))
    with pytest.raises(DataError, match="day_0: damaged gzip data"):
        prepare(tmp_path / "day_0", tmp_path / "out")


def test_whole_lines_before_a_break_are_read(tmp_path: Path) -> None:
    (tmp_path / "day_0").write_bytes(PACKED["gzip"][:-200])
    found = b""
    with pytest.raises(BrokenFileError):
        for block in line_blocks(str(tmp_path / "day_0"), 5000, 8):
            found += block[:-8].tobytes()
    assert TEXT.startswith(found)
    assert found.endswith(b"\n")
    assert len(found) > len(TEXT) - 2000


def test_other_encodings_and_binary_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "wide.tsv").write_bytes(TEXT.decode().encode("utf-16"))
    with pytest.raises(DataError, match="UTF-16"):
        prepare(tmp_path / "wide.tsv", tmp_path / "out")
    (tmp_path / "noise").write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(DataError, match="noise: line 1: expected 40 fields"):
        prepare(tmp_path / "noise", tmp_path / "out")


def test_columns_and_delimiter_are_free(tmp_path: Path) -> None:
    (tmp_path / "logs.csv").write_bytes(b"1,5,,0a\n0,,7,ff\n")
    prepare(tmp_path / "logs.csv", tmp_path / "out", numeric=2, categorical=1, delimiter=",", split="none", min_count=1)
    found = read_split(tmp_path / "out", "train")
    assert found["label"].tolist() == [1, 0]
    np.testing.assert_allclose(found["dense"], np.log1p([[5, 0], [0, 7]]), rtol=1e-6)
    assert found["C1"].tolist() == [1, 2]


def test_line_numbers_of_bad_rows_count_blank_lines_and_blocks(tmp_path: Path) -> None:
    (tmp_path / "logs").write_bytes(b"1\t1\ta\n\n" * 500 + b"1\t1\tz\n" + b"1\t1\ta\n" * 500 + b"\n7\t1\ta")
    source, bad = open_source("criteo"), list[BadRow]()
    options = ReadOptions(numeric=1, categorical=1, block_bytes=700)
    schema = source.schema(options)
    assert schema is not None
    chunks = list(source.read(str(tmp_path / "logs"), schema, options, bad.append))
    assert sum(chunk.rows for chunk in chunks) == 1000
    assert [(row.line, row.reason, row.text) for row in bad] == [(1001, "hex", "1\t1\tz"), (1503, "label", "7\t1\ta")]


def test_real_samples(tmp_path: Path, shared_data: Path) -> None:
    summary = prepare(shared_data / "criteo_kaggle_10k.tsv.gz", tmp_path / "kaggle", test=2000, split="sequential")
    assert summary.rows == {"train": 8000, "test": 2000}
    labels = np.concatenate([read_split(tmp_path / "kaggle", name)["label"] for name in ("train", "test")])
    assert 0.21 < labels.mean() < 0.22
    prepare(shared_data / "criteo_terabyte_300.tsv", tmp_path / "terabyte", split="none")
    assert read_split(tmp_path / "terabyte", "train")["label"].sum() == 13
