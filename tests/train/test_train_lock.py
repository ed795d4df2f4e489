"""Two runs into one directory: the second is refused, and a killed one leaves nothing locked."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lanner import storage
from lanner.data import Dataset
from lanner.errors import ConfigError
from lanner.train.recipe import parse
from lanner.train.run import train
from lanner.train.run_directory import LOCK, RunDirectory

HOLD = """
import sys
from pathlib import Path
from lanner import storage
with storage.locked(Path(sys.argv[1]), "there"):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(file: Path) -> subprocess.Popen[str]:
    """A process that holds the lock until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"overwrite": True}])
def test_a_second_run_is_refused_while_the_first_writes(
    dataset: Callable[..., Dataset], tmp_path: Path, options: dict[str, bool]
) -> None:
    model = {"dim": 4, "bottom": [4], "top": [1]}
    recipe = parse({"data": dataset().path, "out": str(tmp_path / "run"), "model": model, **options})
    other = hold(tmp_path / "run" / LOCK)
    (tmp_path / "run" / "recipe.yaml").write_text("of the first run")
    with pytest.raises(ConfigError, match=r"run: another run is writing there"):
        train(recipe, quiet=True)
    assert (tmp_path / "run" / "recipe.yaml").read_text() == "of the first run"
    (tmp_path / "run" / "recipe.yaml").unlink()
    other.kill()
    assert other.wait() == -signal.SIGKILL
    assert (tmp_path / "run" / LOCK).exists()
    train(recipe, quiet=True)
    assert not (tmp_path / "run" / LOCK).exists()


def test_a_lock_ends_with_its_block(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError), storage.locked(tmp_path / "new" / "lock", "there"):
            with pytest.raises(ConfigError), storage.locked(tmp_path / "new" / "lock", "there"):
                pass
            raise RuntimeError
        assert not (tmp_path / "new" / "lock").exists()


def test_a_status_of_running_that_nobody_will_change_is_told(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    assert run.read_status() is None
    run.write_status({"status": "running", "processes": 2})
    other = hold(tmp_path / "run" / LOCK)
    assert run.read_status() == {"status": "running", "processes": 2}
    other.kill()
    other.wait()
    assert run.read_status() == {"status": "killed", "processes": 2}
    run.write_status({"status": "failed", "processes": 2, "cause": "full"})
    assert run.read_status() == {"status": "failed", "processes": 2, "cause": "full"}
