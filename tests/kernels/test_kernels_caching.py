"""Compiled kernels on disk follow the sources."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import lanner
from lanner.kernels.caching import imported

PACKAGE = Path(lanner.__file__).parent
KERNEL = """
import numba
from lanner.kernels.probe import helper

@numba.njit(cache=True)
def twice(pair):
    return 2 * helper.value() * pair.one

print(twice(helper.PAIR), sum(twice.stats.cache_hits.values()))
"""
HELPER = """
import numba
from collections import namedtuple

{name} = namedtuple("{name}", ["one"])
PAIR = {name}(1)

@numba.njit(cache=True)
def value():
    return {value}
"""


def test_a_kernel_is_compiled_anew_when_a_file_it_imports_has_changed(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "lanner", ignore=shutil.ignore_patterns("__pycache__"))
    probe = tmp_path / "lanner" / "kernels" / "probe"
    probe.mkdir()
    (probe / "__init__.py").write_text("")
    (probe / "cpu.py").write_text(KERNEL)

    def run() -> list[str]:
        command = [sys.executable, "-c", "import lanner.kernels.probe.cpu"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()

    (probe / "helper.py").write_text(HELPER.format(value=21, name="Pair"))
    assert run() == ["42", "0"]
    assert run() == ["42", "1"]
    (probe / "helper.py").write_text(HELPER.format(value=4, name="Pair"))
    assert run() == ["8", "0"]
    (probe / "helper.py").write_text(HELPER.format(value=5, name="Renamed"))  # the kept index names a type that is gone
    assert run() == ["10", "0"]
    assert run() == ["10", "1"]


def test_imports_are_followed() -> None:
    found = {file.relative_to(PACKAGE).as_posix() for file in imported(PACKAGE / "kernels" / "update" / "cpu.py")}
    assert {"kernels/update/cpu.py", "kernels/update/cpu_rows.py", "kernels/simd.py", "kernels/lanes.py"} <= found
    assert "kernels/tokenize/cpu.py" not in found
