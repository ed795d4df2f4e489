"""Which form of a kernel runs, and what is said where it cannot."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from lanner.errors import ConfigError, MissingExtraError
from lanner.kernels import backends


def test_by_default_the_place_of_the_tensors_decides():
    assert backends.chosen("auto", torch.zeros(1)) == "cpu"
    assert backends.chosen("reference", torch.zeros(1)) == "reference"


def test_tensors_of_the_cpu_do_not_go_to_the_device(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(ConfigError, match=r"backend 'gpu' works on tensors on a CUDA device .* got one on cpu"):
        backends.chosen("gpu", torch.zeros(1))


def test_without_triton_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "lanner.kernels.lookup.gpu", raising=False)
    with pytest.raises(MissingExtraError, match=r"the GPU backend needs .* pip install 'lanner\[gpu\]'"):
        backends.gpu("lookup")


def test_lanner_does_not_import_triton_before_a_kernel_needs_it():
    code = "import sys, lanner.embedding, lanner.kernels.unique; assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
