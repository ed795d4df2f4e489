"""The example schemas prepare the logs they were written for, by the commands in their heads."""

from __future__ import annotations

import gzip
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prep_logs import read_split, read_vocab
from typer.testing import CliRunner

from lanner.cli.main import app
from lanner.schema import Schema

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "schemas"


def prepared(name: str, folder: Path, out: Path) -> dict[str, int]:
    """Run the first command in the head of an example on the files in `folder`; rows by split."""
    head = "\n".join(line[1:] for line in (EXAMPLES / name).read_text().split("\n") if line.startswith("#"))
    command = re.search(r"^ *lanner prep ((?:.*\\\n)*.*)$", head, re.MULTILINE)
    assert command is not None
    words = shlex.split(command[1].replace("\\\n", " "))
    words[words.index("--out") + 1] = str(out)
    where = {f"examples/schemas/{name}": str(EXAMPLES / name)}
    files = {word: str(folder / word) for word in words if (folder / word).is_file()}
    joined = {word: word.replace("=", f"={folder}/") for word in words if word.startswith("movieId=")}
    done = CliRunner().invoke(app, ["prep", *({**where, **files, **joined}.get(word, word) for word in words)])
    assert done.exit_code == 0, done.output
    schema = Schema.load(out / "schema.yaml")
    splits = [split for split in ("train", "valid", "test") if (out / split).is_dir()]
    return {split: len(read_split(out, split)[schema.labels[0].name]) for split in splits}


@pytest.mark.parametrize(
    ("name", "folder", "rows", "positive"),
    [
        ("criteo.yaml", ".", 10_000, 0.218),
        ("avazu.yaml", ".", 3_000, 494 / 3000),
        ("adult.yaml", ".", 48_842, 0.239),
        ("movielens_small.yaml", "ml-latest-small", 100_004, 0.515),
        ("amazon.yaml", ".", 100, 0.48),
        ("alimama.yaml", ".", 300, 122 / 300),
    ],
)
def test_the_real_samples(
    shared_data: Path, tmp_path: Path, name: str, folder: str, rows: int, positive: float
) -> None:
    found = prepared(name, shared_data / folder, tmp_path / "out")
    label = Schema.load(tmp_path / "out" / "schema.yaml").labels[0].name
    assert sum(found.values()) == rows
    ones = sum(int(read_split(tmp_path / "out", split)[label].sum()) for split in found)
    assert ones / rows == pytest.approx(positive, abs=0.002)


def test_the_lists_of_amazon_and_alimama_are_those_of_the_files(shared_data: Path, tmp_path: Path) -> None:
    prepared("amazon.yaml", shared_data, tmp_path / "amazon")
    lines = [line.split(";") for line in (shared_data / "amazon_din_100.txt").read_text().split("\n") if line]
    values = {number: value for value, number in read_vocab(tmp_path / "amazon", "item").items()}
    train = read_split(tmp_path / "amazon", "train")["items"]
    known = set(values.values())
    for row, line in zip(train, lines, strict=False):
        assert [values.get(int(at)) for at in row] == [
            int(item) if int(item) in known else None for item in line[0].split(" ")[-50:]
        ]
    prepared("alimama.yaml", shared_data, tmp_path / "alimama")
    with gzip.open(shared_data / "alimama_dmr_300.csv.gz", "rt") as source:
        rows = [[float(cell) for cell in line.split(",")] for line in source]
    found = read_split(tmp_path / "alimama", "train")
    ids: Any = read_vocab(tmp_path / "alimama", "category")
    for at, row in enumerate(rows):
        assert found["categories"][at].tolist() == [ids.get(int(value), 0) for value in row[50:100] if value]
        assert found["behaviours"][at].tolist() == [int(value) for value in row[:50] if value]
        assert found["brand"][at] == 0 or row[263]


def test_the_histories_of_movielens_are_earlier_likes(shared_data: Path, tmp_path: Path) -> None:
    prepared("movielens_small.yaml", shared_data / "ml-latest-small", tmp_path / "out")
    with gzip.open(shared_data / "ml-latest-small" / "ratings.csv.gz", "rt") as source:
        rows = [line.rstrip("\n").split(",") for line in source][1:]
    times = sorted(int(row[3]) for row in rows)
    start = times[len(times) - int(0.2 * len(times))]
    ids: Any = read_vocab(tmp_path / "out", "film")
    found = read_split(tmp_path / "out", "test")["liked_before"]
    test = [row for row in rows if int(row[3]) >= start]
    assert len(test) == len(found)
    liked: dict[str, list[list[str]]] = {}
    for row in rows:
        if float(row[2]) >= 4:
            liked.setdefault(row[0], []).append(row)
    for row, bag in list(zip(test, found, strict=True))[::97]:
        earlier = sorted((r for r in liked.get(row[0], []) if int(r[3]) < int(row[3])), key=lambda r: int(r[3]))
        assert bag.tolist() == [ids.get(int(r[1]), 0) for r in earlier[-20:]]


def test_taobao_behaviour_logs(tmp_path: Path) -> None:
    kinds = ("pv", "buy", "fav", "cart")
    lines = [f"{at % 9},{at * 7 % 40},{at * 7 % 5},{kinds[at % 4]},{1511544070 + at * 11 % 997}" for at in range(500)]
    (tmp_path / "UserBehavior.csv").write_text("\n".join(lines))
    found = prepared("taobao.yaml", tmp_path, tmp_path / "out")
    assert sum(found.values()) == 500
    assert Counter(len(row) > 0 for row in read_split(tmp_path / "out", "test")["item_history"])[True] == found["test"]
