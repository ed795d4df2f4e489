"""The Triton kernels compile for a real card, where the interpreter is more lenient than the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from lanner.kernels.update import Rule

pytest.importorskip("triton")
ROOT = Path(__file__).resolve().parents[2]
SOME = [("ADAM", "bfloat16"), ("ROWWISE_ADAGRAD", "float16"), ("FTRL", "float32"), ("SGD", "uint8")]
EVERY = list(product((rule.name for rule in Rule), ("float32", "float16", "bfloat16")))


@pytest.mark.parametrize("wanted", [SOME, pytest.param(EVERY, marks=pytest.mark.slow)], ids=["some", "every"])
def test_kernels_become_machine_code(wanted: list[tuple[str, str]], tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tests" / "kernels" / "compile_for_hopper.py"), *sum(wanted, ())]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    compiled = [line.split() for line in done.stdout.splitlines()]
    assert {name for name, *_ in compiled} >= {"_copied", "_pooled", "_step_tiles", "_step_long_runs"}
    assert all(architecture == "90" and int(size) > 0 for _, architecture, size in compiled)
