"""Pieces of the staged rows, read apart, are the rows in their order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from prep_logs import make_rows, write

from lanner.prep.choices import Choices
from lanner.prep.plan import make_plan
from lanner.prep.split import SplitPlan
from lanner.prep.staged_rows import StagedRows
from lanner.prep.staging import stage_files

SPLITS = [SplitPlan(), SplitPlan("random", 0.3, 0.3), SplitPlan("file", test="*day_1")]


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.kind or "default")
@pytest.mark.parametrize("size", [1, 97, 1000, 1 << 20])
def test_cuts_give_every_row_once_and_in_order(tmp_path: Path, split: SplitPlan, size: int) -> None:
    for number, count in enumerate([500, 300]):
        write(tmp_path / f"day_{number}", make_rows(count, seed=number, numeric=1, categorical=2))
    plan = make_plan(
        [str(tmp_path / "day_*")], str(tmp_path / "out"), "criteo", None, split=split, choices=Choices(),
        memory="64MB", reading={"numeric": 1, "categorical": 2}, fit="train", strict=True, rows=None,
        dense_type="float32", shuffle=None, recipe="lanner",
    )  # fmt: skip
    rows = StagedRows(stage_files(plan, tmp_path, quiet=True), plan)
    whole = np.concatenate([chunk.sparse[0].keys for chunk in rows.all()])
    read = []
    for cut in rows.cuts(None, size):
        chunks = list(rows.read(cut))
        assert sum(chunk.rows for chunk in chunks) == cut.rows <= size
        read += [chunk.sparse[0].keys for chunk in chunks]
    np.testing.assert_array_equal(np.concatenate(read), whole)
    for name, count in rows.counts.items():
        expected = np.concatenate([chunk.sparse[1].keys for chunk in rows.of(name)])
        assert len(expected) == count
        cuts = rows.cuts(name, size)
        found = [np.concatenate([chunk.sparse[1].keys for chunk in rows.read(cut)]) for cut in cuts]
        np.testing.assert_array_equal(np.concatenate(found), expected)
        assert [cut.start for cut in cuts] == list(range(0, count, size))
