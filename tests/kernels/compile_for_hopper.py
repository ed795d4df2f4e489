"""Compile the Triton kernels of look-ups and steps to machine code of an H100 or H200, on any machine; launch none.

Run as `compile_for_hopper.py RULE FORMAT [RULE FORMAT ...]`, in a process of its own without TRITON_INTERPRET. Prints
a line for each kernel: its name, the architecture, and bytes of machine code.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

TARGET = GPUTarget("cuda", 90, 32)


class Absent:
    """As much of a driver as the compiler asks for."""

    def get_current_target(self):
        return TARGET

    def get_current_device(self):
        return 0

    def get_current_stream(self, _device):
        return 0

    def get_benchmarker(self):
        return triton.testing.do_bench


def compile_only(run):
    """`JITFunction.run` that launches nothing."""

    def compiled(self, *args, grid, warmup, **options):
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        if kernel is not None:
            print(self.__name__, kernel.metadata.target.arch, len(kernel.asm["cubin"]))
        return kernel

    return compiled


def main(wanted):
    driver.set_active(Absent())
    JITFunction.run = compile_only(JITFunction.run)
    from update_steps import STEPS, states_for

    from lanner.kernels.layout import MEAN, SUM
    from lanner.kernels.lookup import gpu as lookups
    from lanner.kernels.update import UNNAMED, Names, Rule
    from lanner.kernels.update import gpu as updates

    layout = np.array([(0, 0, 50, SUM, 0, 128), (1, 50, 50, MEAN, 64, 128)], np.int64)
    names = Names(np.array([(0, 1, 0, 1, 0), (50, 2, 0, 1, 0)]), torch.arange(100))
    values, out = torch.zeros(32, dtype=torch.int64), torch.zeros(16 * 128)
    for rule, kind in zip(wanted[::2], wanted[1::2], strict=True):
        weights = torch.zeros(100, 64, dtype=getattr(torch, kind))
        for offsets in (None, torch.arange(33)):
            scales = torch.zeros(100, 2) if kind == "uint8" else None
            lookups.lookup(weights, layout, values, offsets, None, 16, out, None, scales)
        if kind != "uint8":
            step, states = STEPS[Rule[rule]], states_for(Rule[rule], weights, np.random.default_rng(0))
            for called in (UNNAMED, names):
                updates.update(weights, states, out, layout, values, None, None, 16, None, step, 7, called)


if __name__ == "__main__":
    main(sys.argv[1:])
