"""Runs killed with SIGKILL anywhere: the next one ends with the same bytes and reads no finished file again."""

from __future__ import annotations

import gzip
import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from prep_logs import make_rows, published_bytes, text_of

from lanner.prep import prepare
from lanner.prep.report import NAME

FILES, OPTIONS = 3, {"min_count": 2, "shuffle": True, "memory": "64MB", "quiet": True}

CHILD = """
import json, os, signal, sys
out, last, options, files = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4:]
from lanner.prep import prepare
from lanner.prep.report import NAME
import lanner.prep.engine  # not while the events are counted
events = 0

def watch(event, arguments):
    global events
    if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir") and str(arguments[0]).startswith(out):
        events += 1
        if events == last:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
prepare(files, out, **options)
print(events)
"""
"""Prepares, and kills itself when it touches `out` for the `last` time."""


class Case:
    """Logs, and what an uninterrupted run makes of them."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.files = folder, []
        for number in range(FILES):
            path = folder / f"day_{number}.gz"
            path.write_bytes(gzip.compress(text_of(make_rows(rows, seed=number)), 1))
            self.files.append(str(path))
        self.touches = int(self.run("whole", 0).communicate()[0])
        self.expected = published_bytes(folder / "whole")

    def run(self, name: str, last: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", CHILD, str(self.folder / name), str(last), json.dumps(OPTIONS), *self.files]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def check_again(self, name: str) -> list[bool]:
        """Prepare to the same place, after a kill; which files had been staged."""
        out = self.folder / name
        assert not (out / "manifest.json").exists()
        done = {json.loads(path.read_text())["file"] for path in out.glob(".prep/*/done.json")}
        summary = prepare(self.files, out, **OPTIONS)
        staged = [file.file in done for file in summary.files]
        assert [file.reused for file in summary.files] == staged
        assert published_bytes(out) == self.expected
        assert (out / NAME).read_bytes() == (self.folder / "whole" / NAME).read_bytes()
        assert not (out / ".prep").exists()
        return staged

    def kill_at(self, touch: int) -> list[bool]:
        process = self.run(f"killed-{touch}", touch)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        return self.check_again(f"killed-{touch}")


def test_killed_halfway_and_late(tmp_path: Path) -> None:
    case = Case(tmp_path, 400)
    assert [sum(case.kill_at(case.touches * share // 5)) for share in (2, 4)] == [FILES, FILES]


@pytest.mark.slow
def test_killed_at_every_stage(tmp_path: Path) -> None:
    case = Case(tmp_path, 400)
    staged = {sum(case.kill_at(touch)) for touch in range(1, case.touches - 3, max(case.touches // 30, 1))}
    assert {0, FILES} < staged  # before, within and after the staging of the files


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path: Path) -> None:
    case, choose = Case(tmp_path, 20_000), random.Random(0)
    killed = 0
    for number in range(12):
        process = case.run(f"timed-{number}", 0)
        try:
            process.wait(choose.uniform(0.5, 4))
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        if not (case.folder / f"timed-{number}" / "manifest.json").exists():
            case.check_again(f"timed-{number}")
            killed += 1
    assert killed
