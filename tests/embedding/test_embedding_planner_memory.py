"""Free memory within control groups, and predicted against measured memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lanner.embedding.planner.free_memory import free_bytes

GIB = 1 << 30
BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "memory.py"


def machine(root: Path, groups: str, available: int = 8 * GIB) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {available >> 10} kB\n")
    (root / "proc/self/cgroup").write_text(groups)


def group(folder: Path, limit: object, used: int, cached: int, version: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"inactive_file {cached}\ntotal_inactive_file {cached}\nother 1\n")


def test_without_limits_it_is_what_the_machine_has(tmp_path: Path) -> None:
    machine(tmp_path, "0::/user\n")
    group(tmp_path / "sys/fs/cgroup/user", "max", GIB, 0)
    assert free_bytes(tmp_path) == 8 * GIB


def test_a_limit_counts_less_what_is_used_and_cannot_be_given_back(tmp_path: Path) -> None:
    machine(tmp_path, "0::/box/inner\n")
    group(tmp_path / "sys/fs/cgroup/box/inner", "max", GIB, 0)
    group(tmp_path / "sys/fs/cgroup/box", 4 * GIB, 2 * GIB, GIB)  # of a group around it
    assert free_bytes(tmp_path) == 3 * GIB


def test_version_one(tmp_path: Path) -> None:
    machine(tmp_path, "9:name=systemd:/\n4:cpu,memory:/job\n0::/\n")
    group(tmp_path / "sys/fs/cgroup/memory/job", 3 * GIB, GIB, 0, version=1)
    group(tmp_path / "sys/fs/cgroup/memory", 2**63 - 4096, 5 * GIB, 0, version=1)
    assert free_bytes(tmp_path) == 2 * GIB


def test_a_group_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    machine(tmp_path, "0::/\n")
    group(tmp_path / "sys/fs/cgroup", GIB, 2 * GIB, 0)
    assert free_bytes(tmp_path) == 0


def test_this_machine() -> None:
    assert free_bytes() > 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's account of memory")
@pytest.mark.parametrize("options", [("--rows", "4000000"), ("--rows", "2000000", "--optimizer", "Adam")])
def test_training_takes_what_was_predicted(options: tuple[str, ...]) -> None:
    command = [sys.executable, str(BENCHMARK), *options, "--steps", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 0.7 <= float(done.stdout.rsplit(maxsplit=1)[-1]) <= 1.2, done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's account of memory")
def test_a_large_table_takes_what_was_predicted() -> None:
    """50 M rows x 32: run where there is memory for it."""
    if free_bytes() < 8 * GIB:
        pytest.skip("needs 8 GiB of free memory")
    done = subprocess.run([sys.executable, str(BENCHMARK), "--steps", "5"], capture_output=True, text=True, check=True)
    assert 0.85 <= float(done.stdout.rsplit(maxsplit=1)[-1]) <= 1.2, done.stdout
