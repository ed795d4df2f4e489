"""Scripts that the documentation shows run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@pytest.mark.parametrize(
    ("page", "launcher"),
    [("embedding.md", ()), ("plan.md", ()), pytest.param("sharding.md", TORCHRUN, marks=pytest.mark.slow)],
    ids=lambda value: value.removesuffix(".md") if isinstance(value, str) else "",
)
def test_the_first_script_of_a_page_runs(page: str, launcher: tuple[str, ...], tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert found is not None
    script = tmp_path / "script.py"
    script.write_text(found[1])
    command = [sys.executable, *launcher, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
