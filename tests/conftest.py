"""Fixtures every room's tests share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the rooms' tests share `processes`

# Idle OpenMP threads sleep: spinning ones starve the kernels' own threads on small machines.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import pytest
import torch
from hypothesis import settings

# Without a device, Triton's interpreter runs the GPU kernels; Triton reads this when it is imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# The first call of a kernel compiles it, which no deadline for one example allows for.
settings.register_profile("lanner", deadline=None)
settings.load_profile("lanner")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of small real data sets beside the repository; tests that need it skip without it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the real data samples are not at {folder}")
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fail-on-skip", action="store_true", help="a skipped test fails the run (CI installs all)")


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if skipped and session.config.getoption("--fail-on-skip"):
        reporter.write_line(f"{len(skipped)} tests were skipped and --fail-on-skip is set", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
