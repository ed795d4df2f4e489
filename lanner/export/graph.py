"""The dense part of a model: an ONNX graph from dense features and embeddings to scores."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from lanner import storage
from lanner.errors import DataError, MissingExtraError

GRAPH = "model.onnx"

CHUNK = 1024
"""Rows a session takes at a time: larger pieces only fall out of the caches."""

SMALL = 48
"""Batches of up to so many rows run on one thread: waking a second one costs more than it saves (benchmarks/serving.py
--dense-backends)."""


class DenseGraph:
    """An ONNX Runtime session, or two: one thread for small batches, `threads` for the others.

    Call it with dense float32 [B, D] and embedded float32 [B, W]; it gives scores float32 [B, L]. Threads sleep while
    there is nothing to do. Safe to call from several threads.
    """

    def __init__(self, path: str | os.PathLike[str], threads: int) -> None:
        with storage.open_file(path) as file:
            data = file.read()
        self._one = _session(data, 1, path)
        self._many = self._one if threads == 1 else _session(data, threads, path)
        self._names = [given.name for given in self._one.get_inputs()]
        self.outputs = int(self._one.get_outputs()[0].shape[1])

    def __call__(self, dense: np.ndarray, embedded: np.ndarray) -> np.ndarray:
        if len(dense) <= CHUNK:
            return self._run(dense, embedded)
        pieces = [slice(start, start + CHUNK) for start in range(0, len(dense), CHUNK)]
        return np.concatenate([self._run(dense[piece], embedded[piece]) for piece in pieces])

    def _run(self, dense: np.ndarray, embedded: np.ndarray) -> np.ndarray:
        session = self._one if len(dense) <= SMALL else self._many
        given = {"dense": dense, "embedded": embedded}
        scores: np.ndarray = session.run(None, {name: given[name] for name in self._names})[0]
        return scores


def _session(data: bytes, threads: int, path: str | os.PathLike[str]) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("serving", "serve") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has no public base class of its errors
        raise DataError(f"{os.fspath(path)}: not a usable ONNX graph: {error}") from error
