"""Ids outside their table and bags that do not fit: alike for tables of every kind, in training and once exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lanner.data.batch import Bags
from lanner.embedding import Backing, EmbeddingCollection, FeatureConfig, TableConfig
from lanner.embedding.initializers import Constant
from lanner.errors import DataError, IdRangeError
from lanner.export.tables import load_tables
from lanner.schema import Schema

KINDS = ("static", "fp16", "bf16", "on disk", "dynamic")
MALFORMED = {
    "offsets end early": ([0, 2, 4, 6, 7], "'b': offsets end at 7, but there are 8 ids"),
    "offsets end late": ([0, 2, 4, 6, 9], "'b': offsets end at 9, but there are 8 ids"),
    "not a bag for each feature": ([0, 2, 4, 8], r"expected F\*B \+ 1 for F = 2 features \(a, b\)"),
    "offsets go down": ([0, 5, 4, 6, 8], "'a': sample 1 ends at 4, before its start 5"),
    "offsets start at 1": ([1, 2, 4, 6, 8], "'a': offsets start at 1"),
    "a negative length": ([0, 2, 1, 6, 8], "'a': sample 1 ends at 1, before its start 2"),
}


def collection(kind: str, **options: Any) -> EmbeddingCollection:
    """Feature a looks up T1, of ones, and b T2, of twos; 10 rows each, or keys 0..9."""
    rows: Any = "dynamic" if kind == "dynamic" else 10
    dtype: Any = kind if kind in ("fp16", "bf16") else "fp32"
    backing = Backing(1 << 20, tables=("T1", "T2")) if kind == "on disk" else None
    tables = [TableConfig(f"T{k}", rows, 4, Constant(float(k)), dtype=dtype) for k in (1, 2)]
    made = EmbeddingCollection(tables, [FeatureConfig("a", "T1"), FeatureConfig("b", "T2")], backing=backing, **options)
    if kind == "dynamic":
        made(bags([*range(10), *range(10)])).sum().mul(0).backward()
    return made


def exported(made: EmbeddingCollection, path: Path) -> EmbeddingCollection:
    """The tables as a server has them."""
    rows = made.tables[0].rows
    encoder = {"kind": "key"} if rows == "dynamic" else {"kind": "identity", "size": rows}
    features = [{"name": f.name, "table": f.table, "raw": "int", "encoder": encoder} for f in made.features]
    schema = Schema.parse({"sparse": features, "tables": [{"name": t.name, "rows": rows} for t in made.tables]})
    made.embedding_dump(path)
    return load_tables(path, schema)


def bags(ids: list[int], offsets: list[int] | None = None) -> Bags:
    return Bags(("a", "b"), torch.tensor(ids), None if offsets is None else torch.tensor(offsets))


def rows_of(made: EmbeddingCollection) -> list[np.ndarray]:
    return [np.concatenate([block.weights for block in made.blocks(table.name)]) for table in made.tables]


@pytest.mark.parametrize("kind", KINDS)
def test_bags_that_do_not_fit_are_refused_before_anything_changes(kind: str, tmp_path: Path) -> None:
    made = collection(kind)
    served = exported(made, tmp_path)
    before = rows_of(made)
    for offsets, message in MALFORMED.values():
        strangers = bags([70, 71, 72, 73, 74, 75, 76, 77] if kind == "dynamic" else [3] * 8, offsets)
        for given in (made.train(), made.eval(), served):
            with pytest.raises(DataError, match=message):
                given(strangers)
    for old, new in zip(before, rows_of(made), strict=True):
        np.testing.assert_array_equal(new, old)
    assert (made.train()(bags([3] * 8, [0, 2, 4, 6, 8])) == torch.tensor([2.0] * 4 + [4.0] * 4)).all()


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("kind", KINDS[:4])
def test_an_id_outside_its_table_is_named_and_never_reads_the_next(kind: str, ragged: bool, tmp_path: Path) -> None:
    made = collection(kind)
    served = exported(made, tmp_path)
    offsets = [0, 1, 2, 3, 4] if ragged else None
    for given in (made.train(), made.eval(), served):
        for wrong in (10, -1, 2**40, 2**63 - 1, -(2**63)):
            with pytest.raises(IdRangeError, match=rf"'T1'.*id {wrong} of feature 'a' \(sample 1\).*10 rows"):
                given(bags([9, wrong, 9, 0], offsets))
            assert given(bags([9, 0, 9, 0], offsets))[:, 0].tolist() == [1.0, 1.0]
    assert all((rows == k).all() for k, rows in enumerate(rows_of(made), 1))


@pytest.mark.parametrize("kind", KINDS[:4])
@pytest.mark.parametrize("training", [True, False])
def test_in_unknown_mode_such_ids_take_row_0_and_are_counted(kind: str, training: bool) -> None:
    made = collection(kind, out_of_range="unknown").train(training)
    out = made(bags([9, 10, -1, 2**40, 0, 1, 2, 3]))
    assert (out[:, :4] == 1.0).all() and (out[:, 4:] == 2.0).all()
    assert made.unknown_ids == {"a": 3, "b": 0}


def test_in_a_dynamic_table_they_are_keys_and_what_is_not_known_reads_the_default(tmp_path: Path) -> None:
    made = collection("dynamic")
    served = exported(made, tmp_path)
    for given in (made.eval(), served):
        out = given(bags([9, 10, -1, 2**40, 0, 1, 2, 3]))
        assert out[:, 0].tolist() == [1.0, 0.0, 0.0, 0.0] and (out[:, 4:] == 2.0).all()
        assert {name: table.counters.unknown for name, table in given.dynamic_tables.items()} == {"T1": 3, "T2": 0}
    made.train()(bags([9, 10, -1, 2**40, 0, 1, 2, 3]))
    assert sorted(made.dynamic_tables["T1"].keys()) == [-1, *range(11), 2**40]
