"""Layers with fused kernels take their plain form in graphs that leave the process."""

from __future__ import annotations

import torch


def exporting() -> bool:
    """True while a graph is being traced, exported or compiled."""
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return tracing or torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export()
