"""The numeric heart: one folder an operation, each with a plain reference and a CPU form."""

import sys
from typing import Any

from numba.core import event

from lanner.kernels import caching


class _Notice(event.Listener):
    """Says once, on standard error, that kernels are being compiled: the one pause a first run has."""

    def __init__(self) -> None:
        self._said = False

    def on_start(self, event: Any) -> None:
        if not self._said and event.data["dispatcher"].py_func.__module__.startswith("lanner."):
            self._said = True
            print("compiling kernels for this machine (kept on disk for later runs) …", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Notice())
caching.install()
