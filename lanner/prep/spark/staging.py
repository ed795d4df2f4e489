"""Pass 1 on Spark: a task a file. Compressed text cannot be cut, so that a file is the unit of work."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

from lanner import storage
from lanner.errors import ConfigError
from lanner.prep import scratch
from lanner.prep.plan import Plan
from lanner.prep.sources import open_source
from lanner.prep.spark.jobs import Jobs
from lanner.prep.stage import StagedFile
from lanner.prep.staging import check_head, stage_file, usable
from lanner.progress import progress

_TOKEN = "seen-by-all"


def check_workers(jobs: Jobs, folder: Path) -> None:
    """Raise ConfigError unless the workers that answer have this Lanner and see the scratch folder."""
    token = folder / _TOKEN
    token.write_text(uuid4().hex)
    check = partial(_check_worker, version("lanner"), token, token.read_text())
    try:
        jobs.map("checking the workers", check, range(jobs.parallelism))
    finally:
        token.unlink()


def _check_worker(expected: str, token: Path, text: str, _number: int) -> None:
    host = socket.gethostname()
    if (installed := version("lanner")) != expected:
        raise ConfigError(f"worker {host} has lanner {installed}, this is {expected}")
    try:
        seen = token.read_text() == text
    except OSError:
        seen = False
    if not seen:
        raise ConfigError(
            f"worker {host} does not see {token.parent}: give an output, or a scratch folder, on a path that all "
            "machines of the cluster share"
        )


def stage(plan: Plan, folder: Path, jobs: Jobs) -> list[StagedFile]:
    """See `lanner.prep.engine.Workers.stage`. With a limit on rows the files are read one after the other."""
    keys = [plan.stage_key(file) for file in plan.files]
    scratch.forget_others(folder, keys)
    found = {key: ready for key in keys if (ready := usable(folder / key, plan.strict))}
    for key in keys:
        if key not in found:
            shutil.rmtree(folder / key, ignore_errors=True)
    todo = [(file, key) for file, key in zip(plan.files, keys, strict=True) if key not in found]
    start = Path.cwd()
    jobs.map("first rows", partial(_check_head, plan, start), [file for file, _ in todo])
    if plan.rows is None:
        staged = jobs.map("reading", partial(_stage, plan, folder, start, None), todo)
        found |= {key: file for (_, key), file in zip(todo, staged, strict=True)}
        return [found[key] for key in keys]
    files: list[StagedFile] = []
    left = plan.rows
    for file, key in zip(plan.files, keys, strict=True):
        if left == 0:
            break
        if key not in found:
            found |= {key: jobs.map("reading", partial(_stage, plan, folder, start, left), [(file, key)])[0]}
        files.append(found[key])
        left -= found[key].rows
    return files


def _check_head(plan: Plan, start: Path, file: str) -> None:
    with _working_in(start):
        if not storage.exists(file):
            raise ConfigError(f"worker {socket.gethostname()} does not see {file}: all machines must")
        check_head(open_source(plan.source), file, plan)


def _stage(plan: Plan, folder: Path, start: Path, limit: int | None, item: tuple[str, str]) -> StagedFile:
    """Stage into a folder of this attempt's own, since Spark may try a task twice, even at once."""
    file, key = item
    attempt = folder / f"{key}.{uuid4().hex}"
    with _working_in(start), progress("", quiet=True) as bar:
        staged = stage_file(open_source(plan.source), file, attempt, plan, limit, bar)
    staged.folder = folder / key
    try:
        attempt.rename(staged.folder)
    except OSError:  # the other attempt was quicker
        shutil.rmtree(attempt)
    return staged


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """Relative paths mean what they mean where the run was started."""
    before = Path.cwd()
    if folder.is_dir():
        os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
