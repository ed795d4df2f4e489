"""Processes that make a collection in different ways hear of it at once."""

from __future__ import annotations

from typing import Any

import pytest
from processes import run

from lanner.embedding import SGD, Adam, EmbeddingCollection, FeatureConfig, TableConfig
from lanner.errors import ConfigError


def collection(rows: int = 40, **options: Any) -> EmbeddingCollection:
    return EmbeddingCollection([TableConfig("t", rows, 4)], [FeatureConfig("f", "t")], **options)


def differ(rank: int) -> None:
    other = 1 - rank
    for what, options in (
        ("tables, features or plan", {"rows": 40 + rank}),
        ("optimizer, seed or track_changes", {"seed": rank}),
        ("optimizer, seed or track_changes", {"optimizer": Adam(0.1 + rank)}),
        ("optimizer, seed or track_changes", {"track_changes": rank == 0}),
    ):
        with pytest.raises(ConfigError, match=f"rank {other} has other {what} than rank {rank}"):
            collection(**options)
    model = collection()
    with pytest.raises(ConfigError, match=f"rank {other} has other optimizer than rank {rank}"):
        model.set_optimizer(SGD(0.1 + rank))
    model.set_optimizer(SGD(0.2))


def test_ranks_that_were_given_other_things_are_named() -> None:
    run(differ, 2)
