"""The dense part of a model: an ONNX graph from dense features and embeddings to scores."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np

from lanner import storage
from lanner.errors import DataError, MissingExtraError
from lanner.kernels import parallel

GRAPH = "model.onnx"

PIECE = 128
"""Rows a session takes at a time at most; their activations then stay in a core's own cache."""

SMALL = 16
"""Rows at least worth a thread of their own."""


class DenseGraph:
    """An ONNX Runtime session of one thread.

    Call it with dense float32 [B, D] and embedded float32 [B, W]; it gives scores float32 [B, L]. Larger batches are
    cut into pieces of rows that run side by side on the kernel threads: faster than the runtime's own threads, which
    wait for each other in every layer. Safe to call from several threads.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        with storage.open_file(path) as file:
            data = file.read()
        self._session = _session(data, path)
        self._names = [given.name for given in self._session.get_inputs()]
        self.outputs = int(self._session.get_outputs()[0].shape[1])

    def __call__(self, dense: np.ndarray, embedded: np.ndarray) -> np.ndarray:
        rows = len(dense)
        size = min(max(-(-rows // parallel.threads()), SMALL), PIECE)
        if rows <= size:
            return self._run(dense, embedded)
        scores = np.empty((rows, self.outputs), dtype=np.float32)

        def fill(piece: slice) -> None:
            scores[piece] = self._run(dense[piece], embedded[piece])

        parallel.run_all([partial(fill, slice(start, start + size)) for start in range(0, rows, size)])
        return scores

    def _run(self, dense: np.ndarray, embedded: np.ndarray) -> np.ndarray:
        given = {"dense": dense, "embedded": embedded}
        scores: np.ndarray = self._session.run(None, {name: given[name] for name in self._names})[0]
        return scores


def _session(data: bytes, path: str | os.PathLike[str]) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("serving", "serve") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has no public base class of its errors
        raise DataError(f"{os.fspath(path)}: not a usable ONNX graph: {error}") from error
