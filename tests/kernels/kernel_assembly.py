"""What machine code a kernel becomes."""

from __future__ import annotations

import numba as nb


def packed_instructions(kernel, *args):
    """The mnemonics of a kernel, compiled afresh (cached kernels keep no text) and called with `args`."""
    fresh = nb.njit(nogil=True)(kernel.py_func)
    fresh(*args)
    return {line.split()[0] for text in fresh.inspect_asm().values() for line in text.splitlines() if line.split()}


def uses(mnemonics, name):
    """Whether an instruction is there, in its SSE or AVX spelling; fused ones count for their parts."""
    fused = name in ("addps", "mulps") and any(word.startswith("vfmadd") and word.endswith("ps") for word in mnemonics)
    return fused or bool({name, "v" + name} & mnemonics)
