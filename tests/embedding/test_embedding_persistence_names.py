"""Tables of any name: each has a directory of its own within the dump, which no name leads out of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lanner.embedding import EmbeddingCollection, FeatureConfig, TableConfig
from lanner.errors import ConfigError

NAMES = (
    "../x",
    "..",
    ".",
    "a/b",
    "/a",
    "a::b",
    "a[1]",
    "a*",
    "%2Fa",
    "ü€ 😀",
    "key",
    "a\nb",
    "C:\\x",
    "~",
    "$HOME",
    "{a,b}",
)


def collection(seed: int) -> EmbeddingCollection:
    tables = [TableConfig(name, 5, 2) for name in NAMES]
    return EmbeddingCollection(tables, [FeatureConfig(name, name) for name in NAMES], seed=seed)


@pytest.mark.parametrize("remote", [False, True])
def test_names_are_no_paths(tmp_path: Path, remote: bool) -> None:
    folder = "memory://names/dump" if remote else tmp_path / "in" / "dump"
    model, other = collection(0), collection(1)
    model.embedding_dump(folder)
    model.embedding_dump(folder)  # over the first
    other.embedding_load(folder)
    assert all(torch.equal(model.weight(name), other.weight(name)) for name in NAMES)
    if not remote:
        assert [path.name for path in tmp_path.iterdir()] == ["in"]
        assert [path.name for path in (tmp_path / "in").iterdir()] == ["dump"]
        directories = {path.name for path in (tmp_path / "in" / "dump").iterdir()}
        assert len(directories) == len(NAMES) and {"..%2Fx", "%2E%2E", "%2E", "a%2Fb"} <= directories


@pytest.mark.parametrize("name", ["", 3, "x" * 256, "/" * 100])
def test_what_cannot_name_a_directory_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"table {name!r}: the name is no text that can name a directory"):
        TableConfig(name, 5, 2)
