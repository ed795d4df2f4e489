"""Interrupted runs: nothing looks finished, and the next run reads only what is left."""

from __future__ import annotations

import fcntl
import gzip
import os
from pathlib import Path

import pytest
from prep_logs import make_rows, published_bytes, text_of, write

from lanner.errors import ConfigError, DataError
from lanner.prep import prepare
from lanner.prep.writer import PartWriter

ROWS = make_rows(1000)


def test_after_a_bad_file_is_replaced_only_that_one_is_read(tmp_path: Path) -> None:
    packed = gzip.compress(text_of(ROWS))
    for name in ("day_0.gz", "day_2.gz"):
        (tmp_path / name).write_bytes(packed)
    (tmp_path / "day_1.gz").write_bytes(packed[:-200])
    with pytest.raises(DataError, match=r"day_1.gz: .* rows could be read"):
        prepare(tmp_path / "day_*.gz", tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert not (tmp_path / "out" / "train").exists()
    (tmp_path / "day_1.gz").write_bytes(packed)
    summary = prepare(tmp_path / "day_*.gz", tmp_path / "out")
    assert summary.total_rows == 3000
    assert [file.reused for file in summary.files] == [True, False, False]
    prepare(tmp_path / "day_*.gz", tmp_path / "fresh")
    assert published_bytes(tmp_path / "out") == published_bytes(tmp_path / "fresh")


def test_ctrl_c_while_writing_leaves_no_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = write(tmp_path / "logs.tsv", ROWS)
    write_batch, calls = PartWriter.write, []

    def interrupted(self: PartWriter, batch: object) -> None:
        write_batch(self, batch)
        calls.append(batch)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(PartWriter, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare(logs, tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert [path.name for path in (tmp_path / "out").rglob("*part*")] == ["part-00000.arrow"]
    monkeypatch.undo()
    summary = prepare(logs, tmp_path / "out")
    assert [file.reused for file in summary.files] == [True]
    prepare(logs, tmp_path / "fresh")
    assert published_bytes(tmp_path / "out") == published_bytes(tmp_path / "fresh")


def staged_once(tmp_path: Path) -> Path:
    """Logs that a run has staged before it failed."""
    logs = write(tmp_path / "logs.tsv", ROWS)
    with pytest.raises(DataError, match="split is empty"):
        prepare(logs, tmp_path / "out", split="random", test=1e-12)
    return logs


def test_other_encodings_and_splits_take_over_the_staged_rows(tmp_path: Path) -> None:
    logs = staged_once(tmp_path)
    assert prepare(logs, tmp_path / "out", split="none", min_count=2, transform="standard").files[0].reused


@pytest.mark.parametrize("options", [{"labelled": False, "numeric": 14}, {"rows": 10}])
def test_another_way_of_reading_stages_again(tmp_path: Path, options: dict[str, object]) -> None:
    logs = staged_once(tmp_path)
    assert not prepare(logs, tmp_path / "out", **options).files[0].reused  # type: ignore[arg-type]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    logs = staged_once(tmp_path)
    os.utime(logs, ns=(10**18, 10**18))
    assert not prepare(logs, tmp_path / "out").files[0].reused


def test_damaged_scratch_is_read_again(tmp_path: Path) -> None:
    logs = staged_once(tmp_path)
    (rows,) = (tmp_path / "out" / ".prep").glob("*/rows.arrow")
    rows.write_bytes(rows.read_bytes()[:100])
    summary = prepare(logs, tmp_path / "out")
    assert (summary.total_rows, summary.files[0].reused) == (1000, False)


def test_scratch_is_gone_after_success_and_may_lie_elsewhere(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs.tsv", ROWS)
    prepare(logs, tmp_path / "out", scratch=str(tmp_path / "scratch"))
    assert not (tmp_path / "out" / ".prep").exists()
    assert not list((tmp_path / "scratch").glob("*/*"))


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs.tsv", ROWS)
    (tmp_path / "scratch" / "mine").mkdir(parents=True)
    (tmp_path / "out" / "train").mkdir(parents=True)
    (tmp_path / "out" / "train" / "notes.txt").touch()
    with pytest.raises(ConfigError, match="out holds train, but no finished dataset"):
        prepare(logs, tmp_path / "out")
    prepare(logs, tmp_path / "out", scratch=str(tmp_path / "scratch"), overwrite=True)
    assert (tmp_path / "scratch" / "mine").exists()
    assert (tmp_path / "out" / "train" / "notes.txt").exists()


def test_two_runs_to_one_place_are_refused(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs.tsv", ROWS)
    (tmp_path / "out" / ".prep").mkdir(parents=True)
    with (tmp_path / "out" / ".prep" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another run"):
            prepare(logs, tmp_path / "out")


def test_files_of_killed_writers_are_removed(tmp_path: Path) -> None:
    logs = staged_once(tmp_path)
    left = [".schema.yaml.abcdefgh.part", "vocab/.C1.parquet.abcdefgh.part", "train/.part-00000.arrow.abcdefgh.part"]
    for name in left:
        (tmp_path / "out" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "out" / name).write_bytes(b"half")
    prepare(logs, tmp_path / "out")
    assert not [path for path in (tmp_path / "out").rglob("*") if path.suffix == ".part"]
