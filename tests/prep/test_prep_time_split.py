"""A split by time does not let the model see the future."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from prep_logs import read_split, read_vocab

from lanner.errors import ConfigError, DataError
from lanner.prep import prepare
from lanner.schema import Dense, Label, Schema, Sparse, VocabEncoder

SCHEMA = Schema(
    labels=(Label(name="click"),),
    dense=(Dense(name="age", transform="standard"),),
    sparse=tuple(Sparse(name=name, encoder=VocabEncoder(min_count=1)) for name in ("user", "item")),
)
ROWS = [  # three users, times interleaved
    ("ann", "book", 10, 1, 5), ("bob", "book", 20, 0, 3), ("cid", "pen", 30, 1, 8), ("ann", "pen", 40, 1, 2),
    ("bob", "ink", 50, 0, 9), ("cid", "book", 60, 1, 7), ("bob", "pen", 70, 0, 7), ("ann", "new", 80, 1, 6),
]  # fmt: skip


def logs(folder: Path, time: str = "{}") -> Path:
    lines = [f"{user},{item},{age},{click},{time.format(at)}" for user, item, age, click, at in ROWS]
    path = folder / "logs.csv"
    path.write_text("\n".join(["user,item,age,click,at", *lines]))
    return path


@pytest.mark.parametrize("time", ["{}", "2024-05-0{}"])
def test_training_ends_before_the_threshold_and_ties_are_later(tmp_path: Path, time: str) -> None:
    prepare(
        logs(tmp_path, time), tmp_path / "out", "csv", SCHEMA, split="time", time="at", test=time.format(7),
        min_count=1,
    )  # fmt: skip
    train = [row for row in ROWS if row[4] < 7]
    test = [row for row in ROWS if row[4] >= 7]
    assert read_split(tmp_path / "out", "train")["click"].tolist() == [row[3] for row in train]
    assert read_split(tmp_path / "out", "test")["click"].tolist() == [row[3] for row in test]
    items = read_vocab(tmp_path / "out", "item")
    assert set(items) == {row[1] for row in train}
    assert read_split(tmp_path / "out", "test")["item"].tolist() == [items.get(row[1], 0) for row in test]
    ages = np.array([row[2] for row in train])
    found = read_split(tmp_path / "out", "test")["dense"][:, 0]
    np.testing.assert_allclose(found, (np.array([row[2] for row in test]) - ages.mean()) / ages.std(), rtol=1e-6)


def test_a_missing_time_is_a_bad_row(tmp_path: Path) -> None:
    path = logs(tmp_path)
    path.write_text(path.read_text() + "\nbob,book,20,0,")
    with pytest.raises(DataError, match="line 10"):
        prepare(path, tmp_path / "out", "csv", SCHEMA, split="time", time="at", test=7)


def test_time_column_and_split_need_each_other(tmp_path: Path) -> None:
    for options in ({"split": "time", "test": 7}, {"time": "at"}):
        with pytest.raises(ConfigError, match="time column"):
            prepare(logs(tmp_path), tmp_path / "out", "csv", SCHEMA, **options)  # type: ignore[arg-type]
