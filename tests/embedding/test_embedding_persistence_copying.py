"""Copies of dumps that hold keys and weights alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lanner import storage
from lanner.data.batch import Bags
from lanner.embedding import Adam, DynamicConfig, EmbeddingCollection, FeatureConfig, TableConfig
from lanner.embedding.persistence import copy_weights, describe
from lanner.errors import DataError

KEYS = torch.tensor([5, -1, -(2**63), 2**63 - 1, 0, 3, 9, 3, 0, 1])


@pytest.fixture
def trained() -> EmbeddingCollection:
    tables = [TableConfig("d", "dynamic", 3, dynamic=DynamicConfig(default=0.5)), TableConfig("s", 10, 4)]
    made = EmbeddingCollection(tables, [FeatureConfig("x", "d"), FeatureConfig("y", "s")], Adam(0.1))
    made(Bags(("x", "y"), KEYS)).sum().backward()
    return made


@pytest.mark.parametrize("remote", [False, True])
def test_a_copy_has_the_rows_and_no_state(trained: EmbeddingCollection, tmp_path: Path, remote: bool) -> None:
    trained.embedding_dump(tmp_path / "full")
    target = "memory://copied" if remote else str(tmp_path / "copied")
    copy_weights(tmp_path / "full", target, ["d", "s"])
    for name in ("d", "s"):
        assert sorted(storage.list_files(storage.join(target, name))) == ["emb_vector", "key", "table.json"]
        for file in ("emb_vector", "key"):
            with storage.open_file(storage.join(target, name, file)) as copied:
                assert copied.read() == (tmp_path / "full" / name / file).read_bytes()
    assert describe(target, "d").default == 0.5 and describe(target, "s").default is None
    twin = EmbeddingCollection(trained.tables, trained.features).eval()
    twin.embedding_load(target, optimizer_state=False)
    given = Bags(("x", "y"), torch.tensor([-1, 77, 4, 9]))
    assert torch.equal(twin(given), trained.eval()(given)) and (twin(given)[1, :3] == 0.5).all()
    with pytest.raises(DataError, match="optimizer Adam, the model uses SGD"):
        twin.embedding_load(target)


def test_what_is_damaged_or_a_delta_is_not_copied(trained: EmbeddingCollection, tmp_path: Path) -> None:
    trained.embedding_dump(tmp_path / "full", ["d"])
    trained.embedding_dump_delta(tmp_path / "delta", tmp_path / "full", ["d"])
    with pytest.raises(DataError, match=r"table 'd' in .*delta: this is delta 1"):
        copy_weights(tmp_path / "delta", tmp_path / "copied", ["d"])
    weights = np.fromfile(tmp_path / "full" / "d" / "emb_vector", "<f4")
    (weights + 1).tofile(tmp_path / "full" / "d" / "emb_vector")
    with pytest.raises(DataError, match=r"table 'd' in .*full: emb_vector is damaged"):
        copy_weights(tmp_path / "full", tmp_path / "copied", ["d"])
    with pytest.raises(DataError, match="not a finished dump"):
        describe(tmp_path / "copied", "d")
